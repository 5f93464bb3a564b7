/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "client/revert/revert_parts.h"

#include "client/copy/copy.h"
#include "client/copy/flags.h"
#include "client/fd.h"
#include "client/path.h"
#include "client/watch.h"
#include "wayback/when.h"
#include <errno.h>
#include <fcntl.h>

int revert_now(const struct revision *revision, const char **ret_name)
{
    *ret_name = revision->found_dir >= 0 ? revision->found_name : revision->name;
    return revision->found_dir >= 0 ? revision->found_dir : revision->same ? revision->dir : -1;
}

int revert_hold(const struct revision *revision, int dir, const char *name)
{
    return wb_hold(dir, name, revision->exists && revision->found_dir < 0 ? &revision->have : NULL);
}

int revert_open(int held, int flags, mode_t need)
{
    char path[WB_FD_PATH_MAX];
    int fd = wb_held_open(held, flags);
    struct stat st;

    if (fd != -EACCES || fstat(held, &st) < 0 || st.st_uid != geteuid() || S_ISLNK(st.st_mode) ||
        (st.st_mode & need) == need)
        return fd;
    if (chmod(wb_fd_proc_path(held, path), (st.st_mode & 07777) | need) < 0)
        return -EACCES;
    return wb_held_open(held, flags);
}

bool revert_is_untouched(const struct revert *revert, const struct revision *revision, const struct stat *have)
{
    const struct stat *want = &revision->want;

    return have->st_ctim.tv_sec == want->st_ctim.tv_sec && have->st_ctim.tv_nsec == want->st_ctim.tv_nsec &&
           have->st_mtim.tv_sec == want->st_mtim.tv_sec && have->st_mtim.tv_nsec == want->st_mtim.tv_nsec &&
           have->st_size == want->st_size && have->st_mode == want->st_mode &&
           have->st_nlink == want->st_nlink &&
           (int64_t)have->st_ctim.tv_sec < revert->when / WB_WHEN_SECOND - 1;
}

/* Whether it is the same object as then, and its content was not changed since. So a file that is restored from the
 * graveyard is not read. */
static bool is_content_untouched(const struct revision *revision, const struct stat *have)
{
    return revision->identity.unchanged && have->st_ino == revision->identity.number &&
           have->st_size == revision->want.st_size;
}

/* 1 if the content of what `held` holds was (or would be) changed, 0, or -errno. */
static int walk_content(struct revert *revert, const struct revision *revision, int held)
{
    _cleanup_fd_ int from = openat(revision->past_dir, revision->past_name, O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
    _cleanup_fd_ int to = -1;
    uint64_t changed = 0;
    int r;

    if (from < 0)
        return -errno;
    to = revert->dry ? wb_held_open(held, O_RDONLY) : revert_open(held, O_RDONLY, 0400);
    if (to < 0)
        return to;
    /* Only a file that differs is opened for writing: that fails for the file of a running program. */
    r = wb_copy_equal(from, to);
    if (r != 0)
        return r < 0 ? r : 0;
    if (!revert->dry) {
        close(to);
        to = -1;
        r = wb_unlock_flags(held, S_IFREG, false);
        if (r < 0)
            return r;
        to = revert_open(held, O_RDWR, 0600);
        r = to < 0 ? to : wb_held_disarm(to, revision->want.st_mode);
        if (r < 0)
            return r;
    }
    r = wb_copy_differences(from, to, revert->dry, &changed);
    if (r < 0)
        return r;
    revert_report(revert, REVERT_REWRITE, revision->path, NULL, changed);
    return 1;
}

/* Gives the name another file: the present one has names outside, which keep it, or must not get the old content. */
static int walk_broken(struct revert *revert, struct revision *revision, bool others)
{
    const char *what = NULL;
    int r = revert_break(revert, revision, others, &what);

    if (r == 0 && !revert->dry) {
        _cleanup_fd_ int held = wb_hold(revision->dir, revision->name, &revision->meant);

        r = MIN(held, 0);
        revert_touch_directory(revert, revision->dir);
        revert_add(revert->touched, revision->meant.st_ino);
    }
    return r < 0 ? revert_fail(revert, revision->path, what, r) : 0;
}

/* Whether the name must get a new file instead of a changed one (wb_held_has_power): 1, 0 or -errno. */
static int must_be_new(const struct revision *revision, int dir, const char *name)
{
    int r = revision->fresh ? 0 : wb_copy_has_power(revision->past_dir, revision->past_name, &revision->want);

    return r > 0 ? revert_differs(revision, dir, name) : r;
}

/* `brought`: revert_bring gave the name its object just now, and reported that. */
static int walk_file(struct revert *revert, struct revision *revision, bool brought)
{
    const char *name, *what;
    int dir = revert_now(revision, &name);
    _cleanup_fd_ int held = -1;
    struct stat have;
    unsigned flags = revert->dry ? WB_ATTRS_DRY : 0;
    bool others;
    int r = 0;

    if (dir < 0)
        return 0;
    held = revert_hold(revision, dir, name);
    if (held < 0 || fstat(held, &have) < 0)
        return revert_fail(revert, revision->path, NULL, held < 0 ? held : -errno);
    if (revert_is_untouched(revert, revision, &have))
        return 0;
    if (have.st_nlink > 1 || revision->want.st_nlink > 1) {
        if (revert_has(revert->broken, have.st_ino))
            return walk_broken(revert, revision, revert_has_other_names(revert, &have));
        if (revert_has(revert->done, have.st_ino))
            return 0;
        revert_add(revert->done, have.st_ino);
    }
    others = revert_has_other_names(revert, &have);
    r = others && !revert->all_links ? revert_differs(revision, dir, name) : must_be_new(revision, dir, name);
    if (r > 0) {
        revert_add(revert->broken, have.st_ino);
        return walk_broken(revert, revision, others);
    }
    if (r < 0 || (others && !revert->all_links))
        return r < 0 ? revert_fail(revert, revision->path, NULL, r) : 0;
    if (S_ISREG(revision->want.st_mode) && !revision->fresh && !is_content_untouched(revision, &have))
        r = walk_content(revert, revision, held);
    if (r < 0)
        return revert_fail(revert, revision->path, NULL, r);
    if (r > 0 || revision->fresh)
        flags |= WB_ATTRS_TOUCHED;
    brought = brought || r > 0;
    r = wb_copy_attrs(revision->past_dir, revision->past_name, &revision->want, held, flags, &what);
    if (r < 0)
        return revert_fail(revert, revision->path, what, r);
    if (r > 0 && !brought)
        revert_report(revert, REVERT_SET, revision->path, NULL, 0);
    if (r > 0 || brought)
        revert_add(revert->touched, have.st_ino);
    if (others && (r > 0 || brought))
        revert_report_shared(revert, revision->path);
    return 0;
}

void revert_note_walked(struct revert *revert, const char *path, int fd)
{
    struct stat st;
    uint64_t *inode;

    if (fstat(fd, &st) < 0)
        return;
    inode = g_new(uint64_t, 1);
    *inode = st.st_ino;
    g_hash_table_insert(revert->walked, g_strdup(path), inode);
}

bool revert_was_walked(const struct revert *revert, const char *path, int fd)
{
    const uint64_t *inode = g_hash_table_lookup(revert->walked, path);
    struct stat st;

    return inode && fstat(fd, &st) == 0 && st.st_ino == *inode && st.st_dev == revert->dev;
}

static int walk_directory(struct revert *revert, const struct revision *revision)
{
    const char *name;
    int dir = revert_now(revision, &name);
    _cleanup_fd_ int from =
        openat(revision->past_dir, revision->past_name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    _cleanup_fd_ int held = -1;
    _cleanup_fd_ int to = -1;
    g_autoptr(GPtrArray) names = from < 0 ? NULL : wb_fd_names(from);
    int r = 0;

    if (!names) {
        revert->result.unplaced++;
        return revert_fail(revert, revision->path, NULL, -errno);
    }
    if (dir >= 0) {
        held = revert_hold(revision, dir, name);
        to = held < 0       ? held
             : revert->dry ? wb_held_open(held, O_RDONLY | O_DIRECTORY)
                           : revert_open(held, O_RDONLY | O_DIRECTORY, 0700);
        if (to < 0) {
            revert->result.unplaced++;
            return revert_fail(revert, revision->path, NULL, to);
        }
        revert_note_walked(revert, revision->path, to);
    }
    for (guint i = 0; i < names->len && r == 0; i++) {
        g_autofree char *source = wb_path_join(revision->source, names->pdata[i]);
        g_autofree char *path = wb_path_join(revision->path, names->pdata[i]);
        struct revision child = {.past_dir = from, .past_name = names->pdata[i], .source = source,
                             .dir = to, .name = names->pdata[i], .path = path, .found_dir = -1};

        if (revert_extent_of(revert, path) == REVERT_NOTHING)
            continue;
        r = revert_walk(revert, &child);
    }
    return r;
}

int revert_walk(struct revert *revert, struct revision *revision)
{
    bool brought = false;
    int r;

    if (wb_watch_stopped())
        return revert_fail(revert, revision->path, NULL, -EINTR);
    r = revert_look(revert, revision);
    if (r == 0 && !revision->same) {
        brought = true;
        r = revert_bring(revert, revision);
    }
    if (r < 0) {
        revert->result.unplaced++;
        r = r == -EXDEV ? revert_fail_mount(revert, revision->path) : revert_fail(revert, revision->path, NULL, r);
    } else if (S_ISDIR(revision->want.st_mode)) {
        r = walk_directory(revert, revision);
    } else {
        r = walk_file(revert, revision, brought);
    }
    wb_watch_progress(1, 0);
    revert_leave(revision);
    return r;
}
