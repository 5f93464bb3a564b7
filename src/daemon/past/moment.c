/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "daemon/past/moment.h"

#include "base/cleanup.h"
#include "daemon/past/past_node.h"
#include "store/directory/signpost.h"
#include "store/tables/pins.h"
#include "store/tables/snapshots.h"
#include "wayback/at_name.h"
#include "wayback/control.h"
#include "wayback/server.h"
#include <errno.h>
#include <fcntl.h>
#include <glib.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <unistd.h>

/* Names like one that does not exist: the edit distance of Levenshtein, and common beginnings. */

#define SUGGESTIONS 4

static unsigned distance(const char *a, const char *b)
{
    size_t length = strlen(b);
    g_autofree unsigned *row = g_new(unsigned, length + 1);

    for (size_t j = 0; j <= length; j++)
        row[j] = (unsigned)j;
    for (size_t i = 1; a[i - 1]; i++) {
        unsigned diagonal = row[0];

        row[0] = (unsigned)i;
        for (size_t j = 1; j <= length; j++) {
            unsigned above = row[j];

            row[j] = MIN(MIN(above, row[j - 1]) + 1, diagonal + (a[i - 1] != b[j - 1]));
            diagonal = above;
        }
    }
    return row[length];
}

static bool is_close(const char *wanted, const char *name)
{
    size_t length = strlen(wanted);

    if (length >= 2 && (g_str_has_prefix(name, wanted) || g_str_has_prefix(wanted, name)))
        return true;
    return length < WB_NAME_MAX && distance(wanted, name) <= 1 + length / 4;
}

/* "NAME, NAME or NAME": snapshots that somebody who wrote `name` may have meant, "" if none; g_free. */
static char *moment_suggest(struct wb_store *store, const char *name)
{
    struct wb_snapshots *all __attribute__((cleanup(wb_snapshots_unrefp))) = NULL;
    const char *found[SUGGESTIONS];
    unsigned count = 0;
    GString *text = g_string_new(NULL);

    if (wb_snapshots_get(store, &all) == 0)
        for (size_t i = all->count; i-- > 0 && count < SUGGESTIONS;)
            if (is_close(name, all->list[i].name))
                found[count++] = all->list[i].name;
    for (unsigned i = 0; i < count; i++)
        g_string_append_printf(text, "%s%s", i == 0 ? "" : i + 1 < count ? ", " : " or ", found[i]);
    return g_string_free(text, FALSE);
}

/* ---- where the tree is ----------------------------------------------------------------------- */

/* One request to the Wayback mount that `fd` is in. 0 or -errno: -ENOTTY, it is in none. */
static int ask(int fd, uint32_t command, struct wb_control *control)
{
    *control = (struct wb_control){.version = WB_CONTROL_VERSION, .command = command};
    return ioctl(fd, WB_CONTROL_IOCTL, control) < 0 ? -errno : wb_control_check(command, 0, control);
}

static int hello(int fd, struct wb_control_hello *ret)
{
    g_autofree struct wb_control *control = g_new(struct wb_control, 1);
    int r = ask(fd, WB_CONTROL_HELLO, control);

    if (r == 0)
        memcpy(ret, control->data, sizeof(*ret));
    return r;
}

/* The directory a path leads to is `fd`, from the root of the tree it belongs to. */
static int find_inside(struct wb_session *session, int fd, struct wb_error *why)
{
    g_autofree struct wb_control *control = g_new(struct wb_control, 1);
    const struct wb_control_identity *identity = (const void *)control->data;
    int r = ask(fd, WB_CONTROL_IDENTIFY, control);

    if (r < 0)
        return wb_error_set(why, r, "%s: cannot determine its path in the tree: %s", session->source, g_strerror(-r));
    if (identity->state != WB_CONTROL_ALIVE)
        return wb_error_set(why, -ENOENT, "%s: the directory was removed; name an existing one, or the whole tree",
                            session->source);
    session->inside = g_strdup(identity->path);
    return 0;
}

/*
 * The tree below a mount: by the descriptors of its daemon, which root and the user who mounted may open, since the
 * mount may cover it; else by its path. Returns a descriptor of it, or a negative errno. *ret_store: a path of the
 * store (NULL: in the tree) through a descriptor that remains open. `given`: the path of the mount.
 */
static int open_below(int mount_fd, const struct wb_control_hello *mount, const char *given, char **ret_store,
                      struct wb_error *why)
{
    _cleanup_close_ int tree = -1, fd = -1;
    g_autofree struct wb_control_hello *other = g_new(struct wb_control_hello, 1);
    int store = -1, r = wb_server_open(mount_fd, mount, &tree, &store);
    uid_t user;

    if (r == -EBADMSG)
        return wb_error_set(why, r, "%s: %s", given, WB_SERVER_NOT_BELIEVED);
    if (r == 0)
        fd = openat(tree, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    else
        fd = open(mount->source, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0 || hello(fd, other) == 0)
        return wb_error_set(why, fd < 0 ? -errno : -ENOENT,
                            "%s is covered by its mount, and only root or the "
                            "user who mounted can access it",
                            *mount->source ? mount->source : given);
    if (r < 0 && (wb_server_user(mount_fd, &user) < 0 || !wb_server_may_name(user, fd)))
        return wb_error_set(why, -EBADMSG, "%s: %s", given, WB_SERVER_NOT_BELIEVED);
    if (store >= 0)
        *ret_store = g_strdup_printf("/proc/self/fd/%d", store);
    return wb_steal_fd(&fd);
}

static int from_mount(struct wb_session *session, int fd, const struct wb_control_hello *mount, char **ret_store,
                      struct wb_error *why)
{
    int r;

    if (!mount->history)
        return wb_error_set(why, -ENOENT,
                            "%s is mounted without a history (history=none, or there was no "
                            "store)",
                            session->source);
    r = find_inside(session, fd, why);
    if (r == 0)
        r = session->src_fd = open_below(fd, mount, session->source, ret_store, why);
    if (r < 0)
        return r;
    free(session->source);
    session->source = strdup(mount->source);
    return session->source ? 0 : -ENOMEM;
}

/* The directory at or above the source that has a store in it; without one the source itself. */
static int from_path(struct wb_session *session, struct wb_error *why)
{
    g_autofree char *top = g_strdup(session->source);

    for (;;) {
        g_autofree char *store = g_build_filename(*top ? top : "/", WB_STORE_NAME, NULL);
        struct stat st;
        char *slash;

        if (lstat(store, &st) == 0 && S_ISDIR(st.st_mode)) {
            session->inside = g_strdup(session->source + strlen(top) + strspn(session->source + strlen(top), "/"));
            session->source[*top ? strlen(top) : 1] = '\0';
            break;
        }
        slash = strrchr(top, '/');
        if (!slash)
            break;
        *slash = '\0';
    }
    session->src_fd = open(session->source, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (session->src_fd < 0)
        return wb_error_set(why, -errno, "%s: %s; SRC must be a directory you may read", session->source,
                            g_strerror(errno));
    return 0;
}

int wb_moment_find_source(struct wb_session *session, char **ret_store, struct wb_error *why)
{
    _cleanup_close_ int fd = open(session->source, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    _cleanup_close_ int point = open(session->mountpoint, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    g_autofree struct wb_control_hello *mount = g_new(struct wb_control_hello, 1);
    g_autofree struct wb_control_hello *around = g_new(struct wb_control_hello, 1);
    bool mounted = fd >= 0 && hello(fd, mount) == 0;
    int r;

    if (fd < 0)
        return wb_error_set(why, -errno, "%s: %s; SRC must be a directory you may read", session->source,
                            g_strerror(errno));
    if (mounted)
        r = from_mount(session, fd, mount, ret_store, why);
    else if (session->options->store)
        r = session->src_fd = wb_steal_fd(&fd);
    else
        r = from_path(session, why);
    if (r >= 0 && point >= 0 && hello(point, around) == 0 && strcmp(around->source, session->source) == 0)
        return wb_error_set(why, -EINVAL, "%s is inside of a mount of %s; choose a mount point outside",
                            session->mountpoint, session->source);
    return r < 0 ? r : 0;
}

/* ---- which moment ---------------------------------------------------------------------------- */

static int unknown(struct wb_session *session, struct wb_error *why)
{
    const char *at = session->options->at;
    g_autofree char *close = moment_suggest(session->store, at);

    if (*close)
        return wb_error_set(why, -EINVAL, "at=%s: no such time, and no such snapshot; did you mean %s?", at, close);
    return wb_error_set(why, -EINVAL,
                        "at=%s: no such time, and no such snapshot; write 14:03, "
                        "\"5 minutes ago\" or 2026-11-20T14:03",
                        at);
}

/* *ret_scope: what a snapshot covers. */
static int parse(struct wb_session *session, struct wb_time *ret, struct wb_object *ret_scope, struct wb_error *why)
{
    const char *at = session->options->at;
    int64_t now = wb_store_now(session->store), created = session->store->header.created;
    char text[WB_WHEN_TEXT_MAX], epoch[WB_WHEN_TEXT_MAX];
    int r = wb_history_time(session->history, at, now, 0, ret, ret_scope);

    if (r < 0)
        return wb_error_set(why, r, "at=%s: the snapshots of %s cannot be read: %s", at, session->source,
                            g_strerror(-r));
    if (r != 0 && wb_time_parse_words(at, now, ret) != 0 && wb_time_parse_free(at, now, ret) != 0)
        return unknown(session, why);
    if (ret->kind != WB_TIME_INSTANT)
        return 0;
    if (ret->instant > now)
        return wb_error_set(why, -EINVAL, "at=%s: that is in the future (%s)", at,
                            wb_when_print(ret->instant, 0, text));
    /* What there was before nobody wrote down. */
    if (ret->instant < created)
        return wb_error_set(why, -ENOENT, "at=%s: the history of %s begins later, at %s (%s)", at, session->source,
                            wb_when_print(created, 1, text), wb_when_print_epoch(created, epoch));
    return 0;
}

/* SRC at that moment: by its path, or where nothing had that path, the directory that has it now. */
static int find_root(struct wb_session *session, const struct wb_time *time, struct wb_revision **ret)
{
    struct wb_history *history = session->history;
    struct wb_revision *root __attribute__((cleanup(wb_revision_unrefp))) = NULL;
    struct wb_revision *dir __attribute__((cleanup(wb_revision_unrefp))) = NULL;
    struct wb_revision *now __attribute__((cleanup(wb_revision_unrefp))) = NULL;
    g_autofree char *name = NULL;
    int r;

    r = wb_revision_root(history, WB_WHEN_PRESENT, &root);
    if (r == 0)
        r = wb_history_find(history, root, session->inside ? session->inside : "", &dir, &name);
    if (r == 0)
        r = wb_revision_at(history, dir, name, time, WB_OBJECT_NONE, ret);
    if (r != WB_ABSENT || !*name)
        return r;
    r = wb_revision_child(history, dir, name, &now);
    return r == 0 ? wb_revision_at(history, now, "", time, WB_OBJECT_NONE, ret) : r;
}

/* What a snapshot covers, at its moment: where it was then is written in it. */
static int find_scope(struct wb_session *session, struct wb_object scope, char **ret_path, struct wb_revision **ret)
{
    struct wb_snapshots *all __attribute__((cleanup(wb_snapshots_unrefp))) = NULL;
    struct wb_revision *at __attribute__((cleanup(wb_revision_unrefp))) = NULL;
    const struct wb_snapshot *snapshot;
    g_auto(GStrv) parts = NULL;
    int r = wb_snapshots_get(session->store, &all);

    snapshot = r == 0 ? wb_snapshots_find(all, session->options->at, 0) : NULL;
    if (!snapshot)
        return r < 0 ? r : WB_ABSENT;
    r = wb_history_split(snapshot->path, &parts);
    if (r == 0)
        r = wb_revision_root(session->history, snapshot->when, &at);
    for (char **part = parts; r == 0 && *part; part++) {
        struct wb_revision *next = NULL;

        r = wb_revision_child(session->history, at, *part, &next);
        if (r == 0) {
            wb_revision_unref(at);
            at = next;
        }
    }
    if (r == 0 && !wb_object_equal(wb_revision_object(at), scope))
        r = WB_ABSENT;
    if (r == 0) {
        *ret_path = g_strdup(snapshot->path);
        *ret = g_steal_pointer(&at);
    }
    return r;
}

/* A snapshot of a directory says nothing of what is outside: asked for more, it shows that directory. */
static int stay_within(struct wb_session *session, struct wb_object scope, struct wb_revision **revision)
{
    struct wb_revision *within = NULL;
    g_autofree char *path = NULL;
    int r = find_scope(session, scope, &path, &within);

    if (r != 0)
        return r;
    if (!wb_revision_is_within(within, wb_revision_object(*revision))) {
        wb_revision_unref(within);
        return WB_ABSENT;
    }
    wb_revision_unref(*revision);
    *revision = within;
    g_free(session->inside);
    session->inside = g_steal_pointer(&path);
    return 0;
}

/* Between opening the store and pinning it, it may have been moved: what is open then is the store no more. */
static int check_place(const struct wb_session *session, struct wb_error *why)
{
    return wb_signpost_leads_away(session->store->dir_fd)
               ? wb_error_set(why, -EAGAIN, "%s: the store was moved meanwhile (vstore); try again", session->source)
               : 0;
}

/* Nothing at or before the moment is under way any more, and nothing of it goes while it is mounted. */
static int settle(struct wb_session *session, int64_t when, struct wb_error *why)
{
    int r = wb_history_wait_daemon(session->history, when);

    if (r == 0)
        r = wb_store_pin(session->store, when);
    return r < 0 ? wb_error_set(why, r,
                                "at=%s: a change of that time, or thinning (vprune), is in progress; try "
                                "again later",
                                session->options->at)
                 : check_place(session, why);
}

/* Which moments are read here, and what the kernel keeps of them, nobody else knows. */
static int pin_all(struct wb_session *session, struct wb_error *why)
{
    int r = wb_store_pin_all(session->store);

    return r < 0 ? wb_error_set(why, r, "%s: versions are being thinned out (vprune); try again", session->source)
                 : check_place(session, why);
}

int wb_moment_open(struct wb_session *session, struct wb_error *why)
{
    struct wb_revision *revision __attribute__((cleanup(wb_revision_unrefp))) = NULL;
    struct wb_object scope = WB_OBJECT_NONE;
    struct wb_past_node *node;
    struct wb_time time;
    int r;

    if (!session->options->at)
        return pin_all(session, why);
    r = parse(session, &time, &scope, why);
    if (r == 0 && time.kind == WB_TIME_INSTANT)
        r = settle(session, time.instant, why);
    if (r < 0)
        return r;
    r = find_root(session, &time, &revision);
    if (r == 0 && !wb_revision_is_within(revision, scope))
        r = stay_within(session, scope, &revision);
    if (r == WB_ABSENT || r == -ENOENT)
        return wb_error_set(why, -ENOENT, "at=%s: there was no %s%s%s at that time", session->options->at,
                            session->source, session->inside && *session->inside ? "/" : "",
                            session->inside ? session->inside : "");
    if (r != 0)
        return wb_error_set(why, r < 0 ? r : -EIO, "at=%s: %s cannot be restored: %s", session->options->at,
                            session->source, *wb_history_error() ? wb_history_error() : g_strerror(r < 0 ? -r : EIO));
    if (wb_revision_type(revision) != S_IFDIR)
        return wb_error_set(why, -ENOTDIR, "at=%s: %s/%s was not a directory then", session->options->at,
                            session->source, session->inside);
    if (time.kind != WB_TIME_INSTANT)
        r = settle(session, wb_revision_when(revision), why);
    if (r < 0)
        return r;
    /* No name is empty, so this key is nobody else's; and the node stays as long as the session. */
    node = wb_past_intern(session, &session->nodes.root->node, "", 0, wb_revision_when(revision), revision);
    if (!node)
        return wb_error_set(why, -ENOMEM, "no memory");
    session->root = &node->node;
    session->moment = session->past->pinned = wb_revision_when(revision);
    return 0;
}

char *wb_moment_name(const struct wb_options *options, const char *source, int64_t when)
{
    char text[WB_WHEN_TEXT_MAX];

    return wb_at_join(source, options->at_sign, wb_when_print_iso(when, text)) ?: g_strdup(source);
}

char *wb_moment_label(const struct wb_session *session)
{
    g_autofree char *path = NULL;

    if (session->moment == WB_WHEN_PRESENT)
        return g_strdup(session->source);
    path = session->inside && *session->inside ? g_build_filename(session->source, session->inside, NULL)
                                               : g_strdup(session->source);
    return wb_moment_name(session->options, path, session->moment);
}
