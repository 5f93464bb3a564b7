/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * One file of a store that moves: content with its holes, extended attributes, owner, mode and times. A copy has the
 * time of modification of its original, by which logs are judged after a power cut, and for time of access the time of
 * change of the original: nobody asks when a file of the store was read, and so it can be told, whenever the move is
 * gone on with, whether the original was touched since.
 */
#include "maintain/relocate/move_parts.h"

#include "base/cleanup.h"
#include "base/io.h"
#include "base/xattr.h"
#include "wayback/when.h"
#include <errno.h>
#include <fcntl.h>
#include <glib.h>
#include <linux/fs.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <sys/xattr.h>

#define BLOCK (1 << 20)

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
    ssize_t length = wb_listxattr_fd(from, names, sizeof(names));

    if (length < 0)
        return length == -EOPNOTSUPP ? 0 : (int)length;
    for (const char *name = names; name < names + length; name += strlen(name) + 1) {
        ssize_t size;
        int r;

        value = value ? value : g_try_malloc(XATTR_SIZE_MAX);
        if (!value)
            return -ENOMEM;
        size = wb_getxattr_fd(from, name, value, XATTR_SIZE_MAX);
        r = size < 0 ? (int)size : wb_setxattr_fd(to, name, value, (size_t)size, 0);
        /* What is of this machine (labels) comes by itself there, or not. */
        if (size < 0 || (r < 0 && strncmp(name, "user.", 5) == 0))
            return r;
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

int wb_moving_copy_file(struct wb_moving *moving, int from_dir, const char *from, int to_dir, const char *to)
{
    _cleanup_close_ int in = openat(from_dir, from, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC), out = -1;
    struct stat st;
    int r;

    if (in < 0 || fstat(in, &st) < 0)
        return -errno;
    out = wb_create_own(moving->to_fd, WB_MOVING_TEMPORARY, O_RDWR);
    if (out < 0)
        return out;
    r = copy_into(in, out, &st);
    /* After the clock was set back, the time of the copy does not say that it came after the last sync. */
    if (r == 0 && wb_when_now() <= moving->coming.synced && fdatasync(out) < 0)
        r = -errno;
    if (r == 0 && renameat(moving->to_fd, WB_MOVING_TEMPORARY, to_dir, to) < 0)
        r = -errno;
    if (r < 0)
        unlinkat(moving->to_fd, WB_MOVING_TEMPORARY, 0);
    return r;
}

int wb_moving_copy_other(int from_dir, int to_dir, const char *name, const struct stat *st)
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
