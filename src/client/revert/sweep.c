/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "client/revert/revert_parts.h"

#include "client/copy/copy.h"
#include "client/fd.h"
#include "client/path.h"
#include "client/watch.h"
#include <errno.h>
#include <fcntl.h>
#include <string.h>

void revert_sync(const struct revert *revert, int dir, const char *name)
{
    _cleanup_fd_ int held = revert->sync && !revert->dry ? wb_hold(dir, name, NULL) : -1;
    _cleanup_fd_ int fd = -1;
    struct stat st;

    if (held < 0 || fstat(held, &st) < 0 || (!S_ISREG(st.st_mode) && !S_ISDIR(st.st_mode)) ||
        !revert_has(revert->touched, st.st_ino))
        return;
    fd = wb_held_open(held, O_RDONLY);
    if (fd >= 0)
        fsync(fd);
}

/* The path to report: of an object that was put aside, the name that it lost. g_free. */
static char *reported_path(const struct revert *revert, const char *dir, const char *name)
{
    g_autofree char *path = wb_path_join(dir, name);
    const char *own = g_hash_table_lookup(revert->aside_of, path);

    return own ? g_strdup(own) : g_steal_pointer(&path);
}

/* Removes everything below a directory that is to be removed; `st` is its own. */
static int remove_below(struct revert *revert, int dir, const char *name, const struct stat *st, const char *path)
{
    g_autoptr(GPtrArray) names = NULL;
    _cleanup_fd_ int held = wb_hold(dir, name, st);
    _cleanup_fd_ int fd = held < 0       ? held
                          : revert->dry ? wb_held_open(held, O_RDONLY | O_DIRECTORY)
                                        : revert_open(held, O_RDONLY | O_DIRECTORY, 0700);
    int r = 0;

    /* Checked again with the open directory: something may have been mounted there meanwhile. */
    if (fd >= 0 && wb_fd_is_mount(fd, ""))
        return revert_fail_mount(revert, path);
    names = fd < 0 ? NULL : wb_fd_names(fd);
    if (!names)
        return revert_fail(revert, path, NULL, fd < 0 ? fd : -errno);
    for (guint i = 0; i < names->len && r == 0; i++) {
        g_autofree char *below = reported_path(revert, path, names->pdata[i]);

        r = revert_remove(revert, fd, names->pdata[i], below);
    }
    return r;
}

int revert_remove(struct revert *revert, int dir, const char *name, const char *path)
{
    struct stat st;
    int r = 0;

    if (wb_watch_stopped())
        return revert_fail(revert, path, NULL, -EINTR);
    if (fstatat(dir, name, &st, AT_SYMLINK_NOFOLLOW) < 0)
        return errno == ENOENT ? 0 : revert_fail(revert, path, NULL, -errno);
    if (revert_is_mount(revert, dir, name, &st))
        return revert_fail_mount(revert, path);
    /* With `dry`, objects that would have been renamed are still here. */
    if (revert_has(revert->moved, st.st_ino))
        return 0;
    if (S_ISDIR(st.st_mode))
        r = remove_below(revert, dir, name, &st, path);
    if (r < 0)
        return r;
    if (!revert->dry && unlinkat(dir, name, S_ISDIR(st.st_mode) ? AT_REMOVEDIR : 0) < 0)
        return revert_fail(revert, path, "cannot be removed", -errno);
    revert_report(revert, REVERT_REMOVE, path, NULL, 0);
    wb_watch_progress(1, 0);
    return 0;
}

/* Whether an entry that did not exist at T is left alone, because the revert does not concern it. */
static bool is_spared(const struct revert *revert, const char *dir, const char *name)
{
    g_autofree char *path = wb_path_join(dir, name);

    return revert_extent_of(revert, path) != REVERT_ITSELF && !g_str_has_prefix(name, revert->aside) &&
           !g_hash_table_contains(revert->aside_of, path);
}

/* Removes entries that did not exist at T. */
static int remove_extra(struct revert *revert, const GPtrArray *then, int fd, const char *path)
{
    g_autoptr(GPtrArray) now = wb_fd_names(fd);
    int r = 0;

    if (!now)
        return revert_fail(revert, path, NULL, -errno);
    for (guint i = 0; i < now->len && r == 0; i++) {
        g_autofree char *below = NULL;

        if (wb_fd_names_has(then, now->pdata[i]) || is_spared(revert, path, now->pdata[i]))
            continue;
        below = reported_path(revert, path, now->pdata[i]);
        revert_touch_directory(revert, fd);
        r = revert_remove(revert, fd, now->pdata[i], below);
    }
    return r;
}

int revert_directory_attrs(struct revert *revert, const struct revision *revision, int held)
{
    const char *what;
    struct stat have;
    int r;

    if (fstat(held, &have) == 0 && revert_is_untouched(revert, revision, &have))
        return 0;
    r = wb_copy_attrs(revision->past_dir, revision->past_name, &revision->want, held,
                      revert->dry ? WB_ATTRS_DRY : 0, &what);
    if (r < 0)
        return revert_fail(revert, revision->path, what, r);
    if (r > 0 && fstat(held, &have) == 0) {
        /* Its times alone are not reported if its entries were changed. */
        if (!revert_has(revert->touched, have.st_ino))
            revert_report(revert, REVERT_SET, revision->path, NULL, 0);
        revert_add(revert->touched, have.st_ino);
    }
    return 0;
}

/* Returns the directory of the present entry, and its name; with `dry`, where the entry is before the revert. */
static int where_now(struct revert *revert, struct revision *revision, const char **ret_name)
{
    g_autofree char *living = NULL;
    const char *name;

    if (revert->dry && revert_look(revert, revision) < 0)
        return -1;
    if (!revert->dry) {
        revision->same = true;
        *ret_name = revision->name;
        return fstatat(revision->past_dir, revision->past_name, &revision->want, AT_SYMLINK_NOFOLLOW) < 0
                   ? -1
                   : revision->dir;
    }
    if (!revision->same && revision->identity.state == WB_CONTROL_ALIVE &&
        revert_inside(revert, revision->identity.path, &living)) {
        revision->found_dir = wb_fd_open_parent(revert->mount->root_fd, living, &name);
        revision->found_name = g_strdup(name);
    }
    return revert_now(revision, ret_name);
}

static int sweep_below(struct revert *revert, const struct revision *revision, int from, int to, const GPtrArray *names)
{
    int r = 0;

    for (guint i = 0; i < names->len && r == 0; i++) {
        g_autofree char *source = wb_path_join(revision->source, names->pdata[i]);
        g_autofree char *path = wb_path_join(revision->path, names->pdata[i]);
        struct revision child = {.past_dir = from, .past_name = names->pdata[i], .source = source,
                             .dir = to, .name = names->pdata[i], .path = path, .found_dir = -1};

        if (revert_extent_of(revert, path) == REVERT_NOTHING)
            continue;
        r = revert_sweep(revert, &child);
    }
    return r;
}

/* Of a file there is nothing to do but a sync, which a dry run leaves out. */
static bool is_no_directory(const struct revision *revision)
{
    struct stat then;

    return fstatat(revision->past_dir, revision->past_name, &then, AT_SYMLINK_NOFOLLOW) == 0 && !S_ISDIR(then.st_mode);
}

int revert_sweep(struct revert *revert, struct revision *revision)
{
    _cleanup_fd_ int from = -1;
    _cleanup_fd_ int to = -1;
    g_autoptr(GPtrArray) names = NULL;
    const char *name;
    int dir, r = 0;

    if (wb_watch_stopped())
        return revert_fail(revert, revision->path, NULL, -EINTR);
    if (revert->dry && is_no_directory(revision))
        return 0;
    dir = where_now(revert, revision, &name);
    if (dir < 0 || !S_ISDIR(revision->want.st_mode)) {
        if (dir >= 0)
            revert_sync(revert, dir, name);
        revert_leave(revision);
        return 0;
    }
    from = openat(revision->past_dir, revision->past_name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    to = openat(dir, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    names = from < 0 ? NULL : wb_fd_names(from);
    if (to >= 0 && !revert->dry && !revert_was_walked(revert, revision->path, to)) {
        revert_leave(revision);
        return revert->result.unplaced > 0 ? 0 : revert_fail(revert, revision->path, NULL, -ESTALE);
    }
    if (names && to >= 0) {
        /* Objects that could not be placed may be among the entries that did not exist then. */
        if (revert->result.unplaced == 0)
            r = remove_extra(revert, names, to, revision->path);
        if (r == 0)
            r = sweep_below(revert, revision, from, to, names);
        if (r == 0 && revert_extent_of(revert, revision->path) == REVERT_ITSELF)
            r = revert_directory_attrs(revert, revision, to);
        revert_sync(revert, dir, name);
    }
    revert_leave(revision);
    return r;
}

int revert_sweep_beside(struct revert *revert, int parent_dir, const char *parent_path)
{
    g_autoptr(GPtrArray) names = NULL;
    int r = 0;

    if (revert->result.unplaced > 0)
        return 0;
    names = wb_fd_names(parent_dir);
    for (guint i = 0; names && i < names->len && r == 0; i++) {
        g_autofree char *path = NULL;

        if (!g_str_has_prefix(names->pdata[i], revert->aside))
            continue;
        path = reported_path(revert, parent_path, names->pdata[i]);
        r = revert_remove(revert, parent_dir, names->pdata[i], path);
    }
    return r;
}

int revert_sweep_aside(struct revert *revert)
{
    GHashTableIter iter;
    void *path;
    int r = 0;

    g_hash_table_iter_init(&iter, revert->aside_of);
    while (revert->dry && r == 0 && g_hash_table_iter_next(&iter, &path, NULL)) {
        const char *name;
        _cleanup_fd_ int dir = wb_fd_open_parent(revert->mount->root_fd, path, &name);

        if (dir >= 0)
            r = revert_remove(revert, dir, name, path);
    }
    return r;
}
