/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Repairs, and `lost`: bytes to cut off or to replace are saved there first, so no repair deletes the only copy. */
#include "check/checking.h"

#include "base/cleanup.h"
#include "base/io.h"
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define NUMBERS 100000

/* ---- lost ------------------------------------------------------------------------------------------ */

/* The directory for it, of the store or of the graveyard: things are moved there by a rename. */
static int lost_dir(int fd)
{
    if (mkdirat(fd, WB_LOST_NAME, 0700) < 0 && errno != EEXIST)
        return -errno;
    fd = openat(fd, WB_LOST_NAME, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    return fd < 0 ? -errno : fd;
}

/* "objects/2c/ID.undo" is called ID.undo there, ID.undo.1 the next time. */
static void lost_name(const char *path, unsigned number, char name[NAME_MAX + 1])
{
    const char *slash = strrchr(path, '/');
    const char *base = slash ? slash + 1 : path;

    if (number == 0)
        snprintf(name, NAME_MAX + 1, "%.200s", base);
    else
        snprintf(name, NAME_MAX + 1, "%.200s.%u", base, number);
}

int wb_lost_move(struct wb_checking *checking, int dir_fd, const char *path)
{
    _cleanup_close_ int lost = lost_dir(dir_fd == checking->grave_fd ? checking->grave_fd : checking->dir_fd);
    char name[NAME_MAX + 1];

    if (lost < 0)
        return lost;
    for (unsigned i = 0; i < NUMBERS; i++) {
        lost_name(path, i, name);
        if (renameat2(dir_fd, path, lost, name, RENAME_NOREPLACE) == 0)
            return wb_fsync_dir(lost);
        if (errno != EEXIST)
            return -errno;
    }
    return -EEXIST;
}

static int lost_create(struct wb_checking *checking, const char *path, int *ret_dir)
{
    _cleanup_close_ int lost = lost_dir(checking->dir_fd);
    char name[NAME_MAX + 1];

    if (lost < 0)
        return lost;
    for (unsigned i = 0; i < NUMBERS; i++) {
        int fd;

        lost_name(path, i, name);
        fd = openat(lost, name, O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
        if (fd >= 0)
            *ret_dir = wb_steal_fd(&lost);
        if (fd >= 0 || errno != EEXIST)
            return fd < 0 ? -errno : fd;
    }
    return -EEXIST;
}

/* Bytes [from, to) of one file to the beginning of another. */
static int copy_bytes(struct wb_checking *checking, int fd, uint64_t from, uint64_t to, int out)
{
    uint64_t at = 0;
    int r = 0;

    while (r == 0 && from < to) {
        size_t n = (size_t)MIN(to - from, WB_PAYLOAD_MAX);

        r = wb_pread_exact(fd, checking->copy, n, from);
        if (r == 0)
            r = wb_pwrite_full(out, checking->copy, n, at);
        from += n;
        at += n;
    }
    return r == 0 && fsync(out) < 0 ? -errno : r;
}

int wb_lost_copy(struct wb_checking *checking, int fd, const char *path, uint64_t from, uint64_t to)
{
    _cleanup_close_ int dir = -1;
    _cleanup_close_ int out = lost_create(checking, path, &dir);
    int r = out < 0 ? out : copy_bytes(checking, fd, from, to, out);

    return r < 0 ? r : wb_fsync_dir(dir);
}

/* ---- mending ---------------------------------------------------------------------------------------- */

static int open_file(struct wb_checking *checking, const char *path)
{
    return wb_open_own(checking->dir_fd, path, O_RDWR, 0);
}

/* Where in the file an offset of a log is: packed bytes cannot be repaired in place. */
static int find_in_file(int fd, uint64_t *offset)
{
    struct wb_log_bytes bytes;
    int r = wb_log_bytes_open(&bytes, fd);

    if (r == 0 && *offset < wb_log_bytes_unpacked(&bytes))
        r = -EOPNOTSUPP;
    if (r == 0)
        *offset += wb_log_bytes_packed(&bytes) - wb_log_bytes_unpacked(&bytes);
    wb_log_bytes_close(&bytes);
    return r;
}

/* The repair leaves the facts that the log mtime shows (wb_log_set_mtime) unchanged. */
static void keep_time(int fd, const struct stat *before)
{
    struct timespec times[2] = {{.tv_nsec = UTIME_OMIT}, before->st_mtim};

    if (futimens(fd, times) < 0)
        errno = 0;
}

int wb_mend_cut(struct wb_checking *checking, const char *path, uint64_t from, uint64_t to)
{
    _cleanup_close_ int fd = open_file(checking, path);
    uint64_t length = to - from;
    struct stat before;
    int r = fd < 0 ? fd : fstat(fd, &before) < 0 ? -errno : find_in_file(fd, &from);

    if (r == 0)
        r = wb_lost_copy(checking, fd, path, from, from + length);
    if (r < 0)
        return r;
    if (ftruncate(fd, (off_t)from) < 0)
        return -errno;
    keep_time(fd, &before);
    return fsync(fd) < 0 ? -errno : 0;
}

static int overwrite(struct wb_checking *checking, int fd, const char *path, uint64_t offset, const void *data,
                     size_t length)
{
    struct stat before;
    int r = fstat(fd, &before) < 0 ? -errno : wb_lost_copy(checking, fd, path, offset, offset + length);

    if (r == 0)
        r = wb_pwrite_full(fd, data, length, offset);
    if (r == 0)
        keep_time(fd, &before);
    return r == 0 && fsync(fd) < 0 ? -errno : r;
}

int wb_mend_file(struct wb_checking *checking, const char *path, uint64_t offset, const void *data, size_t length)
{
    _cleanup_close_ int fd = open_file(checking, path);

    return fd < 0 ? fd : overwrite(checking, fd, path, offset, data, length);
}

int wb_mend_bytes(struct wb_checking *checking, const char *path, uint64_t offset, const void *data, size_t length)
{
    _cleanup_close_ int fd = open_file(checking, path);
    int r = fd < 0 ? fd : find_in_file(fd, &offset);

    return r < 0 ? r : overwrite(checking, fd, path, offset, data, length);
}

int wb_mend_trailer(struct wb_checking *checking, const char *path, const struct wb_record *record)
{
    uint8_t end[16];
    int length = wb_record_encode_end(record, end);

    if (length < 0)
        return length;
    /* the trailer alone: what pads the payload is of no account */
    return wb_mend_bytes(checking, path, record->offset + record->total - WB_TRAILER_SIZE,
                         end + length - WB_TRAILER_SIZE, WB_TRAILER_SIZE);
}

int wb_mend_links(struct wb_checking *checking, const char *path)
{
    _cleanup_close_ int fd = wb_open_own(checking->dir_fd, path, O_RDONLY, 0);
    _cleanup_close_ int out = -1;
    g_autofree char *temporary = g_strdup_printf("%s.new", path);
    struct stat st;
    int r;

    if (fd < 0 || fstat(fd, &st) < 0)
        return fd < 0 ? fd : -errno;
    out = openat(checking->dir_fd, temporary, O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
    if (out < 0)
        return -errno;
    r = copy_bytes(checking, fd, 0, (uint64_t)st.st_size, out);
    if (r == 0)
        keep_time(out, &st);
    if (r == 0 && renameat(checking->dir_fd, temporary, checking->dir_fd, path) < 0)
        r = -errno;
    if (r < 0) {
        unlinkat(checking->dir_fd, temporary, 0);
        return r;
    }
    return syncfs(out) < 0 ? -errno : 0;
}
