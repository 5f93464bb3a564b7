/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "client/api/api.h"

#include "client/errno_text.h"
#include "client/fd.h"
#include "client/past_path.h"
#include "client/revert/revert.h"
#include "client/watch.h"
#include <errno.h>
#include <fcntl.h>
#include <string.h>

#define KNOWN_FLAGS (WB_RESTORE_DRY_RUN | WB_RESTORE_ALL_LINKS | WB_RESTORE_NO_SYNC)

/* One restore: the wishes of the caller, and its result so far. */
struct restoring {
    const struct wb_client *client;
    struct wb_restore_options options;
    int error; /* of the first failure */
    bool stopped;
};

static const enum wb_restore_action actions[REVERT_ACTIONS] = {
    [REVERT_RESTORE] = WB_RESTORE_RESTORED,   [REVERT_RENAME] = WB_RESTORE_RENAMED,
    [REVERT_LINK] = WB_RESTORE_LINKED,        [REVERT_COPY] = WB_RESTORE_COPIED,
    [REVERT_REWRITE] = WB_RESTORE_REWRITTEN,  [REVERT_SET] = WB_RESTORE_ATTRIBUTES,
    [REVERT_BREAK] = WB_RESTORE_UNLINKED,     [REVERT_REMOVE] = WB_RESTORE_REMOVED,
};

static void on_failure(struct restoring *restoring, const struct revert_event *event, struct wb_restore_event *ret,
                       struct wb_error *text)
{
    const char *what = event->what ? event->what : "";
    int error = event->error ? event->error : -ENOTDIR;
    g_autofree char *whole = wb_client_whole(restoring->client, event->path);

    if (event->error == 0)
        wb_error_set(text, 0, "%s", what);
    else
        wb_error_set(text, 0, "%s%s%s", what, *what ? ": " : "", wb_errno_text(error));
    ret->action = WB_RESTORE_FAILED;
    ret->error = error;
    ret->problem = text->text;
    if (restoring->error == 0)
        restoring->error = wb_client_fail(whole, error, text->text);
}

static void on_event(void *data, const struct revert_event *event)
{
    struct restoring *restoring = data;
    struct wb_restore_event out = {.path = event->path, .other = event->other, .bytes = event->bytes};
    struct wb_error text = {""};

    if (event->kind == REVERT_EVENT_FAILED)
        on_failure(restoring, event, &out, &text);
    else
        out.action = event->kind == REVERT_EVENT_SHARED ? WB_RESTORE_SHARED : actions[event->action];
    if (event->error == -EINTR || !restoring->options.event)
        return;
    if (restoring->options.event(restoring->options.data, &out) != 0)
        restoring->stopped = true;
}

static bool is_stopped(void *data)
{
    const struct restoring *restoring = data;

    return restoring->stopped;
}

/* Options of a program that was built with another version of the header: unknown fields must be 0. */
static int take_options(const struct wb_restore_options *options, struct wb_restore_options *ret)
{
    const unsigned char *bytes = (const void *)options;

    *ret = (struct wb_restore_options){.size = sizeof(*ret)};
    if (!options)
        return 0;
    if (options->size < sizeof(size_t) + sizeof(uint32_t))
        return wb_client_fail(NULL, -EINVAL, "the size of the options is not set (a fault of the program)");
    memcpy(ret, options, MIN(options->size, sizeof(*ret)));
    for (size_t i = sizeof(*ret); i < options->size; i++) {
        if (bytes[i])
            return wb_client_fail(NULL, -EINVAL, "an option is newer than this library; update libwayback");
    }
    if (ret->flags & ~KNOWN_FLAGS)
        return wb_client_fail(NULL, -EINVAL, "a flag is newer than this library; update libwayback");
    return 0;
}

/* What can be found out before anything is changed. 0, or -errno, which is kept. */
static int check(const struct wb_client *client, const char *path, const struct wb_moment *moment, bool dry)
{
    g_autofree char *whole = wb_client_whole(client, path);
    char text[WB_WHEN_TEXT_MAX];
    struct wb_error why = {""};
    struct wb_control_hello hello;
    struct stat st;
    int r = wb_request_hello(client->mount->root_fd, &hello);

    if (r < 0)
        return wb_client_fail(whole, r, NULL);
    if (!dry && (hello.read_only || hello.moment))
        return wb_client_fail(whole, -EROFS, "the mount is read-only; mount it without -o ro and -o at= to change it");
    if (fstatat(client->mount->root_fd, *path ? path : ".", &st, AT_SYMLINK_NOFOLLOW) == 0 &&
        (st.st_ino & WB_PAST_INODE))
        return wb_client_fail(whole, -EROFS, "is a past state, which cannot change; name the present path");
    if (moment->when > hello.now)
        return wb_client_fail(whole, -EINVAL, "the time is in the future");
    r = wb_moment_known(client->mount, wb_when_print_epoch(moment->when, text), moment->when, &why);
    if (r < 0)
        return wb_client_fail(whole, r, why.text);
    if (!moment->path && !*path)
        return wb_client_fail(whole, -ENOENT, "did not exist then; give a later time");
    return 0;
}

static int restore(const struct wb_client *client, const char *path, const struct wb_moment *moment,
                   const struct wb_restore_options *options, struct wb_restore_result *result)
{
    struct restoring restoring = {.client = client, .options = *options};
    struct wb_watch watch = {.stopped = is_stopped, .data = &restoring};
    struct revert_listener listener = {.event = on_event, .data = &restoring};
    struct revert_request request = {.mount = client->mount, .path = path, .source = moment->path,
                                     .when = moment->when, .set = wb_revert_set_new(), .listener = &listener,
                                     .dry = options->flags & WB_RESTORE_DRY_RUN,
                                     .sync = !(options->flags & WB_RESTORE_NO_SYNC),
                                     .all_links = options->flags & WB_RESTORE_ALL_LINKS};
    struct wb_restore_result known = {.when = moment->when, .before = wb_request_now()};
    struct revert_result done;
    const struct wb_watch *former = wb_watch_set(&watch);

    wb_revert_set_add(request.set, path);
    wb_revert_run(&request, &done);
    wb_watch_set(former);
    wb_revert_set_free(request.set);
    for (int i = 0; i < REVERT_ACTIONS; i++)
        known.actions += done.counts[i];
    known.failures = done.failed;
    known.bytes = done.bytes;
    if (result) {
        int r = wb_client_give(result, result->size, &known, sizeof(known));

        if (r < 0)
            return r;
    }
    return restoring.error;
}

/* `when` NULL: the time before the last change. */
static int restore_to(struct wb_client *client, const char *path, const int64_t *when,
                      const struct wb_restore_options *options, struct wb_restore_result *result)
{
    _cleanup_moment_ struct wb_moment moment = {0};
    g_autofree char *inside = NULL;
    struct wb_restore_options wanted;
    struct wb_error why = {""};
    int r = take_options(options, &wanted);

    if (r == 0 && result && result->size < sizeof(size_t) * 2)
        r = wb_client_fail(NULL, -EINVAL, "the size of the result is not set (a fault of the program)");
    if (r == 0)
        r = wb_client_path(client, path, true, &inside);
    if (r < 0)
        return r;
    r = when ? wb_moment_at(client->mount, inside, *when, &moment, &why)
             : wb_moment_before_change(client->mount, inside, 1, &moment, &why);
    if (r < 0 && !(when && *when < client->mount->hello.created))
        return wb_client_fail(path, r, why.text);
    r = check(client, inside, &moment, wanted.flags & WB_RESTORE_DRY_RUN);
    return r < 0 ? r : restore(client, inside, &moment, &wanted, result);
}

int wb_restore(struct wb_client *client, const char *path, int64_t when, const struct wb_restore_options *options,
               struct wb_restore_result *result)
{
    return restore_to(client, path, &when, options, result);
}

int wb_undo(struct wb_client *client, const char *path, const struct wb_restore_options *options,
            struct wb_restore_result *result)
{
    return restore_to(client, path, NULL, options, result);
}
