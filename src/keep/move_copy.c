/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * A copy has the time of modification of its original, by which logs are judged after a power cut, and for time of
 * access the time of change of the original: nobody asks when a file of the store was read, and so it can be told,
 * whenever the move is gone on with, whether the original was touched since. What may not have reached the disk is
 * copied again.
 */
#include "keep/move_parts.h"

#include "base/cleanup.h"
#include "base/io.h"
#include "wayback/when.h"
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <glib.h>
#include <linux/fs.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/xattr.h>
#include <time.h>

#define TEMPORARY "copying.new"
#define BLOCK (1 << 20)
/* After so much, what was copied is brought to the disk, so that an interruption costs no more. */
#define UNSYNCED_BYTES (UINT64_C(256) << 20)
#define UNSYNCED_FILES 8192
/* More than file systems are behind the clock with the times they give. */
#define SLACK WB_WHEN_SECOND

static bool same_time(struct timespec a, struct timespec b)
{
    return a.tv_sec == b.tv_sec && a.tv_nsec == b.tv_nsec;
}

static int64_t when_of(struct timespec time)
{
    return time.tv_sec * INT64_C(1000000000) + time.tv_nsec;
}

/* What is no part of the copy: on its way by itself, or each directory's own. */
static bool stays(const char *name, unsigned depth)
{
    static const char *const names[] = {WB_SIGNPOST_NAME, "." WB_SIGNPOST_NAME ".new", WB_LOCK_NAME, WB_HEADER_NAME,
                                        WB_ARRIVING_NAME, "." WB_HEADER_NAME ".new", ".probe", "lost+found", TEMPORARY};

    if (strcmp(name, ".") == 0 || strcmp(name, "..") == 0)
        return true;
    if (depth == 0)
        for (size_t i = 0; i < G_N_ELEMENTS(names); i++)
            if (strcmp(name, names[i]) == 0)
                return true;
    return false;
}

static bool is_copied(const char *top, const char *name, unsigned depth)
{
    return !stays(name, depth) && !(strcmp(top, WB_LOST_NAME) != 0 && wb_grave_is_body(name));
}

/* ---- one file ---------------------------------------------------------------------------------- */

static int copy_range(int from, int to, off_t at, off_t end, uint8_t *block)
{
    while (at < end) {
        size_t length = (size_t)MIN(end - at, (off_t)BLOCK), got;
        int r = wb_pread_full(from, block, length, (uint64_t)at, &got);

        if (r == 0)
            r = wb_pwrite_full(to, block, got, (uint64_t)at);
        if (r < 0)
            return r;
        if (got < length)
            return 0; /* it is being cut by somebody; it will be copied again */
        at += (off_t)got;
    }
    return 0;
}

static int copy_content(int from, int to, off_t size)
{
    g_autofree uint8_t *block = NULL;
    off_t at = 0, end;
    int r = 0;

    if (size == 0 || ioctl(to, FICLONE, from) == 0)
        return 0;
    block = g_try_malloc(BLOCK);
    if (!block)
        return -ENOMEM;
    while (r == 0 && at < size) {
        at = lseek(from, at, SEEK_DATA);
        if (at < 0 && errno == ENXIO)
            break;
        end = at < 0 ? -1 : lseek(from, at, SEEK_HOLE);
        if (end < 0)
            return -errno;
        r = copy_range(from, to, at, MIN(end, size), block);
        at = end;
    }
    return r == 0 && ftruncate(to, size) < 0 ? -errno : r;
}

static int copy_xattrs(int from, int to)
{
    char names[XATTR_LIST_MAX];
    g_autofree char *value = NULL;
    ssize_t length = flistxattr(from, names, sizeof(names));

    if (length < 0)
        return errno == EOPNOTSUPP ? 0 : -errno;
    for (const char *name = names; name < names + length; name += strlen(name) + 1) {
        ssize_t size;

        value = value ? value : g_try_malloc(XATTR_SIZE_MAX);
        if (!value)
            return -ENOMEM;
        size = fgetxattr(from, name, value, XATTR_SIZE_MAX);
        /* What is of this machine (labels) comes by itself there, or not. */
        if (size < 0 || (fsetxattr(to, name, value, (size_t)size, 0) < 0 && strncmp(name, "user.", 5) == 0))
            return -errno;
    }
    return 0;
}

static int copy_into(int from, int to, const struct stat *st)
{
    struct timespec times[2] = {st->st_ctim, st->st_mtim};
    int r = copy_content(from, to, st->st_size);

    if (r == 0)
        r = copy_xattrs(from, to);
    if (r == 0 && (fchown(to, st->st_uid, st->st_gid) < 0 || fchmod(to, st->st_mode & 07777) < 0))
        r = -errno;
    return r == 0 && futimens(to, times) < 0 ? -errno : r;
}

static int copy_file(struct wb_moving *moving, int from_dir, const char *from, int to_dir, const char *to)
{
    _cleanup_close_ int in = openat(from_dir, from, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC), out = -1;
    struct stat st;
    int r;

    if (in < 0 || fstat(in, &st) < 0)
        return -errno;
    out = wb_create_own(moving->to_fd, TEMPORARY, O_RDWR);
    if (out < 0)
        return out;
    r = copy_into(in, out, &st);
    /* After the clock was set back, the time of the copy does not say that it came after the last sync. */
    if (r == 0 && wb_when_now() <= moving->coming.synced && fdatasync(out) < 0)
        r = -errno;
    if (r == 0 && renameat(moving->to_fd, TEMPORARY, to_dir, to) < 0)
        r = -errno;
    if (r < 0)
        unlinkat(moving->to_fd, TEMPORARY, 0);
    return r;
}

int wb_moving_copy_as(struct wb_moving *moving, const char *from, const char *to)
{
    int r = copy_file(moving, moving->from_fd, from, moving->to_fd, to);

    return r == 0 && syncfs(moving->to_fd) < 0 ? -errno : r;
}

/* Only in `lost`: what was deleted as something else than a file. */
static int copy_other(int from_dir, int to_dir, const char *name, const struct stat *st)
{
    struct timespec times[2] = {st->st_ctim, st->st_mtim};
    char target[PATH_MAX];
    ssize_t length;

    if (unlinkat(to_dir, name, 0) < 0 && errno != ENOENT)
        return -errno;
    if (S_ISLNK(st->st_mode)) {
        length = readlinkat(from_dir, name, target, sizeof(target) - 1);
        if (length < 0)
            return -errno;
        target[length] = '\0';
        if (symlinkat(target, to_dir, name) < 0)
            return -errno;
    } else if (mknodat(to_dir, name, st->st_mode, st->st_rdev) < 0) {
        return -errno;
    }
    return fchownat(to_dir, name, st->st_uid, st->st_gid, AT_SYMLINK_NOFOLLOW) < 0 ||
                   utimensat(to_dir, name, times, AT_SYMLINK_NOFOLLOW) < 0
               ? -errno
               : 0;
}

int wb_moving_sync(struct wb_moving *moving)
{
    int64_t now = wb_when_now();
    int r = syncfs(moving->to_fd) < 0 ? -errno : 0;

    moving->unsynced_files = moving->unsynced_bytes = 0;
    moving->coming.synced = now;
    return r < 0 ? r : wb_signpost_write(moving->to_fd, &moving->coming);
}

static bool is_there(const struct wb_moving *moving, int to_dir, const char *name, const struct stat *st)
{
    struct stat there;

    return to_dir >= 0 && fstatat(to_dir, name, &there, AT_SYMLINK_NOFOLLOW) == 0 && there.st_mode == st->st_mode &&
           there.st_size == st->st_size && same_time(there.st_mtim, st->st_mtim) &&
           same_time(there.st_atim, st->st_ctim) && when_of(there.st_ctim) < moving->coming.synced;
}

/* The last pass copied it or found it there, and it is as it was. After a clock was set nobody can tell by it. */
static bool is_known(const struct wb_moving *moving, const struct stat *st)
{
    return moving->done > 0 && when_of(st->st_ctim) < moving->done - SLACK &&
           ABS(moving->shift - moving->done_shift) < SLACK / 10;
}

/* A file that has several names in the store is copied once, and its copy has them. Whether it was copied before. */
static bool is_linked(struct wb_moving *moving, const struct stat *st, const char **ret)
{
    guint64 ino = st->st_ino;

    *ret = NULL;
    if (!S_ISREG(st->st_mode) || st->st_nlink < 2)
        return false;
    if (!moving->links)
        moving->links = g_hash_table_new_full(g_int64_hash, g_int64_equal, g_free, g_free);
    return g_hash_table_lookup_extended(moving->links, &ino, NULL, (gpointer *)ret);
}

static int note_link(struct wb_moving *moving, const struct stat *st, int to_dir, const char *name)
{
    guint64 ino = st->st_ino;
    char link[32];
    g_autofree char *parent = NULL;

    if (!moving->links || st->st_nlink < 2 || !S_ISREG(st->st_mode))
        return 0;
    parent = to_dir < 0 ? g_strdup("") : g_file_read_link(wb_fd_path(to_dir, link), NULL);
    if (!parent)
        return -EIO;
    g_hash_table_insert(moving->links, g_memdup2(&ino, sizeof(ino)), g_build_filename(parent, name, NULL));
    return 0;
}

static int link_copy(struct wb_moving *moving, const char *copy, int to_dir, const char *name)
{
    struct stat a, b;

    if (stat(copy, &a) == 0 && fstatat(to_dir, name, &b, AT_SYMLINK_NOFOLLOW) == 0 && a.st_dev == b.st_dev &&
        a.st_ino == b.st_ino)
        return 0;
    if (unlinkat(moving->to_fd, TEMPORARY, 0) < 0 && errno != ENOENT)
        return -errno;
    return linkat(AT_FDCWD, copy, moving->to_fd, TEMPORARY, 0) < 0 ||
                   renameat(moving->to_fd, TEMPORARY, to_dir, name) < 0
               ? -errno
               : 0;
}

static int take_file(struct wb_moving *moving, int from_dir, int to_dir, const char *name, const struct stat *st)
{
    uint64_t bytes = (uint64_t)st->st_blocks * 512;
    const char *copy;
    int r = 0;

    if (to_dir != moving->to_fd && is_known(moving, st)) {
        moving->result->there++;
        return 0;
    }
    if (is_linked(moving, st, &copy))
        return moving->look_only ? 0 : link_copy(moving, copy, to_dir, name);
    /* Stores into a mapping, as of `inflight`, are not told by ctime; what lies beside it is small. */
    if (to_dir != moving->to_fd && is_there(moving, to_dir, name, st)) {
        moving->result->there++;
        return note_link(moving, st, to_dir, name);
    }
    moving->result->files++;
    moving->result->bytes += bytes;
    if (moving->look_only)
        return note_link(moving, st, to_dir, name);
    r = S_ISREG(st->st_mode) ? copy_file(moving, from_dir, name, to_dir, name) : copy_other(from_dir, to_dir, name, st);
    /* Beside a daemon: it was renamed or removed just now. */
    if (r == -ENOENT)
        return 0;
    if (r == 0)
        r = note_link(moving, st, to_dir, name);
    if (r == 0 && moving->progress && !moving->progress(1, bytes, moving->data))
        return -ECANCELED;
    moving->unsynced_bytes += bytes;
    moving->unsynced_files++;
    if (r == 0 && (moving->unsynced_bytes > UNSYNCED_BYTES || moving->unsynced_files > UNSYNCED_FILES))
        r = wb_moving_sync(moving);
    return r;
}

/* ---- directories ------------------------------------------------------------------------------- */

static DIR *open_dir(int dir_fd, const char *name)
{
    int fd = openat(dir_fd, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    DIR *dir = fd < 0 ? NULL : fdopendir(fd);

    if (!dir && fd >= 0)
        close(fd);
    return dir;
}

/* Whether it is `objects`, or a directory in it. */
static bool is_of_grave(const char *top, unsigned depth)
{
    return depth <= 1 && strcmp(top, WB_OBJECTS_NAME) == 0;
}

/* Of those that are copied. */
static int count_entries(int dir_fd, const char *top, unsigned depth, uint64_t *ret)
{
    _cleanup_closedir_ DIR *dir = open_dir(dir_fd, ".");
    struct dirent *entry;

    *ret = 0;
    if (!dir)
        return -errno;
    while ((errno = 0, entry = readdir(dir)))
        *ret += is_copied(depth ? top : entry->d_name, entry->d_name, depth);
    return -errno;
}

/* Removes what `is_copied` says of a directory; with `from_fd`, only what is not there. */
static int sweep(int dir_fd, int from_fd, const char *top, unsigned depth, bool is_grave)
{
    _cleanup_closedir_ DIR *dir = open_dir(dir_fd, ".");
    struct dirent *entry;
    struct stat st;
    int r = 0;

    if (!dir)
        return -errno;
    while (r == 0 && (entry = readdir(dir))) {
        const char *name = entry->d_name;
        _cleanup_close_ int inner = -1;

        if (!is_copied(depth ? top : name, name, depth) ||
            (from_fd >= 0 && fstatat(from_fd, name, &st, AT_SYMLINK_NOFOLLOW) == 0))
            continue;
        if (unlinkat(dir_fd, name, 0) == 0 || errno == ENOENT)
            continue;
        inner = openat(dir_fd, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
        r = inner < 0 ? -errno : sweep(inner, -1, depth ? top : name, depth + 1, is_grave);
        /* Where deleted files stay, their directory does. */
        if (r < 0 || (is_grave && is_of_grave(depth ? top : name, depth)))
            continue;
        if (unlinkat(dir_fd, name, AT_REMOVEDIR) < 0 && errno != ENOTEMPTY && errno != EEXIST)
            r = -errno;
    }
    return r;
}

static int walk(struct wb_moving *moving, int from_fd, int to_fd, const char *top, unsigned depth);

static int take_directory(struct wb_moving *moving, int from_fd, int to_fd, const char *name, const char *top,
                          unsigned depth)
{
    _cleanup_close_ int from = openat(from_fd, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC), to = -1;

    if (from < 0)
        return -errno;
    if (!moving->look_only && mkdirat(to_fd, name, 0700) < 0 && errno != EEXIST)
        return -errno;
    if (to_fd >= 0)
        to = openat(to_fd, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (to < 0 && !moving->look_only)
        return -errno;
    return walk(moving, from, to, depth ? top : name, depth + 1);
}

static int walk(struct wb_moving *moving, int from_fd, int to_fd, const char *top, unsigned depth)
{
    _cleanup_closedir_ DIR *dir = open_dir(from_fd, ".");
    struct dirent *entry;
    uint64_t count = 0, there = 0;
    struct stat st;
    int r = 0;

    if (!dir)
        return -errno;
    while (r == 0 && (errno = 0, entry = readdir(dir))) {
        const char *name = entry->d_name;

        if (!is_copied(depth ? top : name, name, depth))
            continue;
        count++;
        if (fstatat(from_fd, name, &st, AT_SYMLINK_NOFOLLOW) < 0)
            r = errno == ENOENT ? 0 : -errno;
        else if (S_ISDIR(st.st_mode))
            r = take_directory(moving, from_fd, to_fd, name, top, depth);
        else
            r = take_file(moving, from_fd, to_fd, name, &st);
    }
    if (r == 0 && !entry && errno)
        r = -errno;
    if (r < 0 || moving->look_only)
        return r;
    /* All that is here is there: only if there is more there, something of it is not here. */
    r = count_entries(to_fd, top, depth, &there);
    return r == 0 && there != count ? sweep(to_fd, from_fd, top, depth, false) : r;
}

static int64_t since_boot(void)
{
    struct timespec now;

    return clock_gettime(CLOCK_BOOTTIME, &now) < 0 ? 0 : when_of(now);
}

int wb_moving_copy(struct wb_moving *moving, struct wb_problem *why)
{
    int r;

    moving->begun = wb_when_now();
    moving->shift = moving->begun - since_boot();
    g_clear_pointer(&moving->links, g_hash_table_unref);
    r = walk(moving, moving->from_fd, moving->to_fd, "", 0);
    g_clear_pointer(&moving->links, g_hash_table_unref);
    if (r == -ECANCELED)
        return wb_problem_set(why, r, "stopped; what was copied stays there, and the store is where it was");
    if (r == 0 && !moving->look_only)
        r = wb_moving_sync(moving);
    moving->done = r == 0 && !moving->look_only ? moving->begun : 0;
    moving->done_shift = moving->shift;
    return r < 0 ? wb_problem_set(why, r, "cannot copy the store to %s: %s; it is where it was", moving->result->to,
                                  g_strerror(-r)) : 0;
}

int wb_moving_clear(int dir_fd, bool is_grave)
{
    int r;

    /* The header first: without it, an older program does not take this for a store either. */
    if ((unlinkat(dir_fd, WB_HEADER_NAME, 0) < 0 && errno != ENOENT) ||
        (unlinkat(dir_fd, WB_ARRIVING_NAME, 0) < 0 && errno != ENOENT))
        return -errno;
    r = sweep(dir_fd, -1, "", 0, is_grave);
    if (r == 0 && ((unlinkat(dir_fd, WB_LOCK_NAME, 0) < 0 && errno != ENOENT) ||
                   (unlinkat(dir_fd, TEMPORARY, 0) < 0 && errno != ENOENT)))
        r = -errno;
    return r;
}
