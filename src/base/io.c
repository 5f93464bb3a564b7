/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "base/io.h"

#include "base/cleanup.h"
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/fs.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

/*
 * Full reads and writes. A short transfer is continued and an interrupted one repeated. Nothing is allocated, because
 * every write goes through this file.
 */

/* The kernel's own limit for one transfer; it cuts longer ones short by design. */
#define IO_CHUNK_MAX 0x7ffff000u

#define PAGE 4096

void *wb_alloc_transfer(size_t size)
{
    return size > SIZE_MAX - PAGE ? NULL : aligned_alloc(PAGE, (size / PAGE + 1) * PAGE);
}

int wb_pread_full(int fd, void *data, size_t length, uint64_t offset, size_t *ret)
{
    uint8_t *to = data;
    size_t done = 0;

    while (done < length) {
        size_t chunk = length - done < IO_CHUNK_MAX ? length - done : IO_CHUNK_MAX;
        ssize_t n = pread(fd, to + done, chunk, (off_t)(offset + done));

        if (n < 0) {
            if (errno == EINTR)
                continue;
            return -errno;
        }
        if (n == 0)
            break;
        done += (size_t)n;
    }
    *ret = done;
    return 0;
}

int wb_pread_exact(int fd, void *data, size_t length, uint64_t offset)
{
    size_t done;
    int r = wb_pread_full(fd, data, length, offset, &done);

    if (r < 0)
        return r;
    return done == length ? 0 : -ENODATA;
}

int wb_pwrite_full(int fd, const void *data, size_t length, uint64_t offset)
{
    struct iovec iov = {.iov_base = (void *)(uintptr_t)data, .iov_len = length};

    return wb_pwritev_full(fd, &iov, 1, offset);
}

int wb_pwritev_full(int fd, struct iovec *iov, int count, uint64_t offset)
{
    for (;;) {
        ssize_t n;

        while (count > 0 && iov->iov_len == 0) {
            iov++;
            count--;
        }
        if (count <= 0)
            return 0;

        n = pwritev(fd, iov, count < IOV_MAX ? count : IOV_MAX, (off_t)offset);
        if (n < 0) {
            if (errno == EINTR)
                continue;
            return -errno;
        }
        /* No file system that we support writes 0 bytes without an error; avoid an endless loop if one does. */
        if (n == 0)
            return -EIO;

        offset += (uint64_t)n;
        while (count > 0 && (size_t)n >= iov->iov_len) {
            n -= (ssize_t)iov->iov_len;
            iov++;
            count--;
        }
        if (n > 0) {
            iov->iov_base = (uint8_t *)iov->iov_base + n;
            iov->iov_len -= (size_t)n;
        }
    }
}

int wb_open_own(int dir_fd, const char *path, int flags, mode_t mode)
{
    struct stat st;

    return wb_open_own_stat(dir_fd, path, flags, mode, &st);
}

int wb_open_own_stat(int dir_fd, const char *path, int flags, mode_t mode, struct stat *ret)
{
    int fd = openat(dir_fd, path, (flags & ~O_TRUNC) | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY | O_CLOEXEC, mode);
    int r = 0;

    if (fd < 0)
        return -errno;
    if (fstat(fd, ret) < 0)
        r = -errno;
    else if (!S_ISREG(ret->st_mode))
        r = -EBADMSG;
    else if ((flags & O_ACCMODE) != O_RDONLY && ret->st_nlink > 1)
        r = -EMLINK;
    else if ((flags & O_TRUNC) && ftruncate(fd, 0) < 0)
        r = -errno;
    if (r == 0)
        return fd;
    close(fd);
    return r;
}

int wb_create_own(int dir_fd, const char *path, int flags)
{
    flags |= O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC;
    for (unsigned attempt = 0;; attempt++) {
        int fd = openat(dir_fd, path, flags, 0600);

        if (fd >= 0)
            return fd;
        if (errno != EEXIST || attempt > 0)
            return -errno;
        if (unlinkat(dir_fd, path, 0) < 0 && errno != ENOENT)
            return -errno;
    }
}

int wb_fsync_dir(int dir_fd)
{
    /* A separate descriptor, because fsync(2) refuses O_PATH ones. */
    _cleanup_close_ int fd = openat(dir_fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);

    if (fd < 0)
        return -errno;
    return fsync(fd) < 0 ? -errno : 0;
}

void wb_ask_for_no_cow(int fd)
{
    int flags = 0;

    if (ioctl(fd, FS_IOC_GETFLAGS, &flags) == 0) {
        flags |= FS_NOCOW_FL;
        ioctl(fd, FS_IOC_SETFLAGS, &flags);
    }
    errno = 0;
}

static int write_and_sync(int dir_fd, const char *name, const void *data, size_t length, mode_t mode, bool no_cow)
{
    _cleanup_close_ int fd = wb_create_own(dir_fd, name, O_WRONLY);
    int r;

    if (fd < 0)
        return fd;
    if (no_cow)
        wb_ask_for_no_cow(fd);
    /* The umask must not reduce the mode. */
    if (fchmod(fd, mode) < 0)
        return -errno;
    r = wb_pwrite_full(fd, data, length, 0);
    if (r < 0)
        return r;
    return fsync(fd) < 0 ? -errno : 0;
}

static int replace(int dir_fd, const char *name, const void *data, size_t length, mode_t mode, bool no_cow)
{
    char temporary[NAME_MAX + 1];
    int n = snprintf(temporary, sizeof(temporary), ".%s.new", name);
    int r;

    if (n < 0 || (size_t)n >= sizeof(temporary))
        return -ENAMETOOLONG;

    r = write_and_sync(dir_fd, temporary, data, length, mode, no_cow);
    if (r < 0)
        goto withdraw;
    if (renameat(dir_fd, temporary, dir_fd, name) < 0) {
        r = -errno;
        goto withdraw;
    }
    return wb_fsync_dir(dir_fd);

withdraw:
    unlinkat(dir_fd, temporary, 0);
    return r;
}

int wb_replace_file(int dir_fd, const char *name, const void *data, size_t length, mode_t mode)
{
    return replace(dir_fd, name, data, length, mode, false);
}

int wb_replace_file_no_cow(int dir_fd, const char *name, const void *data, size_t length, mode_t mode)
{
    return replace(dir_fd, name, data, length, mode, true);
}

int wb_is_zero(const void *data, size_t length)
{
    const uint8_t *bytes = data;
    size_t head = length < 16 ? length : 16;

    for (size_t i = 0; i < head; i++) {
        if (bytes[i])
            return 0;
    }
    /* If the first 16 bytes are zero, all are zero exactly when the rest equals itself moved by 16 bytes; memcmp is
     * vectorised. */
    return length == head || memcmp(bytes, bytes + 16, length - 16) == 0;
}

const char *wb_fd_path(int fd, char path[32])
{
    snprintf(path, 32, "/proc/self/fd/%d", fd);
    return path;
}

/* Linux 6.6; called by number, because not all C libraries have it. A sandbox that does not know it may return
 * EPERM. */
#ifndef SYS_fchmodat2
#define SYS_fchmodat2 452
#endif

int wb_chmod_fd(int fd, mode_t mode)
{
    static atomic_bool unknown;
    char path[32];

    if (!unknown) {
        if (syscall(SYS_fchmodat2, fd, "", mode, AT_EMPTY_PATH) == 0)
            return 0;
        if (errno != ENOSYS && errno != EPERM)
            return -errno;
        unknown = errno == ENOSYS;
    }
    return chmod(wb_fd_path(fd, path), mode) < 0 ? -errno : 0;
}
