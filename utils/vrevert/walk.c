/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "revert.h"
#include "common/cli.h"
#include "common/copy.h"
#include "common/fd.h"
#include "common/path.h"
#include "common/progress.h"
#include <errno.h>
#include <fcntl.h>

int revert_now(const struct spot *spot, const char **ret_name)
{
    *ret_name = spot->found_dir >= 0 ? spot->found_name : spot->name;
    return spot->found_dir >= 0 ? spot->found_dir : spot->same ? spot->dir : -1;
}

int revert_open(int dir, const char *name, int flags, mode_t need)
{
    int fd = openat(dir, name, flags | O_NOFOLLOW | O_CLOEXEC);
    struct stat st;

    if (fd >= 0 || errno != EACCES || fstatat(dir, name, &st, AT_SYMLINK_NOFOLLOW) < 0 ||
        st.st_uid != geteuid() || S_ISLNK(st.st_mode) || (st.st_mode & need) == need)
        return fd >= 0 ? fd : -errno;
    if (fchmodat(dir, name, (st.st_mode & 07777) | need, 0) < 0)
        return -EACCES;
    fd = openat(dir, name, flags | O_NOFOLLOW | O_CLOEXEC);
    return fd >= 0 ? fd : -errno;
}

/*
 * Nothing happened to it since T: the time of its last change is that of then, and so long before T that
 * no later change can share the clock's tick. Spares reading it.
 */
static bool is_untouched(const struct revert *revert, const struct spot *spot, const struct stat *have)
{
    const struct stat *want = &spot->want;

    return have->st_ctim.tv_sec == want->st_ctim.tv_sec && have->st_ctim.tv_nsec == want->st_ctim.tv_nsec &&
           have->st_mtim.tv_sec == want->st_mtim.tv_sec && have->st_mtim.tv_nsec == want->st_mtim.tv_nsec &&
           have->st_size == want->st_size && have->st_mode == want->st_mode &&
           have->st_nlink == want->st_nlink &&
           (int64_t)have->st_ctim.tv_sec < revert->when / WB_WHEN_SECOND - 1;
}

/* It is the very object it was, and nothing of its content was lost since: what comes back out of
 * the graveyard comes back without being read. */
static bool is_content_untouched(const struct spot *spot, const struct stat *have)
{
    return spot->identity.unchanged && have->st_ino == spot->identity.number &&
           have->st_size == spot->want.st_size;
}

/* 1 if the content was (or would be) changed, 0, or -errno. */
static int walk_content(struct revert *revert, const struct spot *spot, int dir, const char *name)
{
    _cleanup_fd_ int from = openat(spot->past_dir, spot->past_name, O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
    _cleanup_fd_ int to = -1;
    uint64_t changed = 0;
    int r;

    if (from < 0)
        return -errno;
    to = revert->dry ? openat(dir, name, O_RDONLY | O_NOFOLLOW | O_CLOEXEC)
                     : revert_open(dir, name, O_RDONLY, 0400);
    if (to < 0)
        return revert->dry ? -errno : to;
    /* Only what differs is opened for writing: a running program's file may not be. */
    r = wb_copy_equal(from, to);
    if (r != 0)
        return r < 0 ? r : 0;
    if (!revert->dry) {
        close(to);
        to = revert_open(dir, name, O_RDWR, 0600);
        if (to < 0)
            return to;
    }
    r = wb_copy_differences(from, to, revert->dry, &changed);
    if (r < 0)
        return r;
    revert_report(revert, REVERT_REWRITE, spot->path, NULL, changed);
    return 1;
}

/* `brought`: the name was given back its object just now, which was reported. */
static int walk_file(struct revert *revert, const struct spot *spot, bool brought)
{
    const char *name, *what;
    int dir = revert_now(spot, &name);
    struct stat have;
    unsigned flags = revert->dry ? WB_ATTRS_DRY : 0;
    int r = 0;

    if (dir < 0)
        return 0;
    if (fstatat(dir, name, &have, AT_SYMLINK_NOFOLLOW) < 0)
        return revert_fail(revert, spot->path, NULL, -errno);
    if (is_untouched(revert, spot, &have))
        return 0;
    if (have.st_nlink > 1 || spot->want.st_nlink > 1) {
        if (revert_has(revert->done, have.st_ino))
            return 0;
        revert_add(revert->done, have.st_ino);
    }
    if (S_ISREG(spot->want.st_mode) && !spot->fresh && !is_content_untouched(spot, &have))
        r = walk_content(revert, spot, dir, name);
    if (r < 0)
        return revert_fail(revert, spot->path, NULL, r);
    if (r > 0 || spot->fresh)
        flags |= WB_ATTRS_TOUCHED;
    brought = brought || r > 0;
    r = wb_copy_attrs(spot->past_dir, spot->past_name, &spot->want, dir, name, flags, &what);
    if (r < 0)
        return revert_fail(revert, spot->path, what, r);
    if (r > 0 && !brought)
        revert_report(revert, REVERT_SET, spot->path, NULL, 0);
    if (r > 0 || brought)
        revert_add(revert->touched, have.st_ino);
    return 0;
}

static int walk_directory(struct revert *revert, const struct spot *spot)
{
    const char *name;
    int dir = revert_now(spot, &name);
    _cleanup_fd_ int from = openat(spot->past_dir, spot->past_name,
                                   O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    _cleanup_fd_ int to = -1;
    g_autoptr(GPtrArray) names = from < 0 ? NULL : wb_fd_names(from);
    int r = 0;

    if (!names) {
        revert->unplaced++;
        return revert_fail(revert, spot->path, NULL, -errno);
    }
    if (dir >= 0) {
        to = revert->dry ? openat(dir, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC)
                         : revert_open(dir, name, O_RDONLY | O_DIRECTORY, 0700);
        if (to < 0) {
            revert->unplaced++;
            return revert_fail(revert, spot->path, NULL, revert->dry ? -errno : to);
        }
    }
    for (guint i = 0; i < names->len && r == 0; i++) {
        g_autofree char *source = wb_path_join(spot->source, names->pdata[i]);
        g_autofree char *path = wb_path_join(spot->path, names->pdata[i]);
        struct spot child = {.past_dir = from, .past_name = names->pdata[i], .source = source,
                             .dir = to, .name = names->pdata[i], .path = path, .found_dir = -1};

        r = revert_walk(revert, &child);
    }
    return r;
}

int revert_walk(struct revert *revert, struct spot *spot)
{
    bool brought = false;
    int r;

    if (wb_cli_interrupted())
        return revert_fail(revert, spot->path, NULL, -EINTR);
    r = revert_look(revert, spot);
    if (r == 0 && !spot->same) {
        brought = true;
        r = revert_bring(revert, spot);
    }
    if (r < 0) {
        revert->unplaced++;
        r = revert_fail(revert, spot->path, NULL, r);
    } else if (S_ISDIR(spot->want.st_mode)) {
        r = walk_directory(revert, spot);
    } else {
        r = walk_file(revert, spot, brought);
    }
    wb_progress_add(1, 0);
    revert_leave(spot);
    return r;
}
