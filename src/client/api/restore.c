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

/* One restore: the options of the caller, and the result so far. */
struct restoring {
    const struct wb_client *client;
    struct wb_restore_options options;
    int error; /* of the first failure, with its path and its description */
    char *failed, *problem;
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

    if (event->is_whole)
        wb_error_set(text, 0, "%s", what);
    else
        wb_error_set(text, 0, "%s%s%s", what, *what ? ": " : "", wb_errno_text(error));
    ret->action = WB_RESTORE_FAILED;
    ret->error = error;
    ret->problem = text->text;
    if (restoring->error == 0) {
        restoring->error = error;
        restoring->failed = wb_client_whole(restoring->client, event->path);
        restoring->problem = g_strdup(text->text);
    }
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

/* Whether some version of the options has this size: a known one ends with a field, a newer one is larger. */
static bool is_size(size_t size)
{
#define END_OF(field) (offsetof(struct wb_restore_options, field) + sizeof(((struct wb_restore_options *)NULL)->field))
    return size == END_OF(flags) || size == offsetof(struct wb_restore_options, event) || size == END_OF(event) ||
           size == END_OF(data) || (size > sizeof(struct wb_restore_options) && size <= WB_CLIENT_SIZE_MAX);
#undef END_OF
}

/*
 * Reads the options of a program that may have been built with another version of the header: fields that this library
 * does not know must be 0. New fields of the structure must not be followed by padding, whose bytes would be compared
 * with 0 here.
 */
static int take_options(const struct wb_restore_options *options, struct wb_restore_options *ret)
{
    const unsigned char *bytes = (const void *)options;

    *ret = (struct wb_restore_options){.size = sizeof(*ret)};
    if (!options)
        return 0;
    if (!is_size(options->size))
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

/* Whether the present can be changed there. 0, or -errno, which is kept. */
static int check_present(const struct wb_client *client, const char *path, const struct wb_control_hello *hello,
                         bool dry)
{
    g_autofree char *whole = wb_client_whole(client, path);
    struct stat st;

    if (!dry && (hello->read_only || hello->moment))
        return wb_client_fail(whole, -EROFS, "the mount is read-only; mount it without -o ro and -o at= to change it");
    if (fstatat(client->mount->root_fd, *path ? path : ".", &st, AT_SYMLINK_NOFOLLOW) == 0 &&
        (st.st_ino & WB_PAST_INODE))
        return wb_client_fail(whole, -EROFS, "is a past state, which cannot change; name the present path");
    return 0;
}

/* Finds the state to restore; `when` NULL: the one before the last change. The time is checked first: in the future no
 * path exists, so the present one would be removed. 0, or -errno, which is kept. */
static int find_moment(const struct wb_client *client, const char *path, const char *inside, const int64_t *when,
                       const struct wb_control_hello *hello, struct wb_moment *ret)
{
    static const struct wb_time newest = {.kind = WB_TIME_VERSION, .number = 1};
    struct wb_error why = {""};
    int r = when ? wb_client_time(client, path, *when, hello) : 0;

    if (r < 0)
        return r;
    r = when ? wb_moment_at(client->mount, inside, *when, ret, &why)
             : wb_moment_before(client->mount, inside, &newest, ret, &why);
    if (r < 0)
        return wb_client_fail(path, r, why.text);
    /* The change may be the first one of all. */
    r = when ? 0 : wb_client_time(client, path, ret->when, hello);
    if (r == 0 && !ret->path && !*inside)
        r = wb_client_fail(path, -ENOENT, "did not exist then; give a later time");
    return r;
}

/* Returns the outcome, and keeps its description again, because `event` may have used the library meanwhile. */
static int finish(const struct restoring *restoring, const char *path, bool interrupted)
{
    g_autofree char *whole = wb_client_whole(restoring->client, path);

    if (interrupted)
        return wb_client_fail(whole, -EINTR, "stopped on request; the same call again finishes the restore");
    return restoring->error ? wb_client_fail(restoring->failed, restoring->error, restoring->problem) : 0;
}

static int restore(const struct wb_client *client, const char *path, const struct wb_moment *moment, int64_t before,
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
    struct wb_restore_result known = {.when = moment->when, .before = before};
    struct revert_result done;
    const struct wb_watch *former = wb_watch_set(&watch);
    int r = 0;

    wb_revert_set_add(request.set, path);
    wb_revert_run(&request, &done);
    wb_watch_set(former);
    wb_revert_set_free(request.set);
    for (int i = 0; i < REVERT_ACTIONS; i++)
        known.actions += done.counts[i];
    known.failures = done.failed;
    known.bytes = done.bytes;
    if (result)
        r = wb_client_give(result, result->size, &known, sizeof(known));
    if (r == 0)
        r = finish(&restoring, path, done.interrupted);
    g_free(restoring.failed);
    g_free(restoring.problem);
    return r;
}

/* `when` NULL: the time before the last change. */
static int restore_to(struct wb_client *client, const char *path, const int64_t *when,
                      const struct wb_restore_options *options, struct wb_restore_result *result)
{
    _cleanup_moment_ struct wb_moment moment = {0};
    g_autofree char *inside = NULL;
    struct wb_restore_result none = {0};
    struct wb_restore_options wanted;
    struct wb_control_hello hello;
    int r = result ? wb_client_give(result, result->size, &none, sizeof(none)) : 0;

    if (r == 0)
        r = take_options(options, &wanted);
    if (r == 0)
        r = wb_client_path(client, path, true, &inside);
    if (r < 0)
        return r;
    r = wb_mount_refresh(client->mount, &hello);
    if (r < 0)
        return wb_client_fail(path, r, NULL);
    r = check_present(client, inside, &hello, wanted.flags & WB_RESTORE_DRY_RUN);
    if (r == 0)
        r = find_moment(client, path, inside, when, &hello, &moment);
    return r < 0 ? r : restore(client, inside, &moment, hello.now, &wanted, result);
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
