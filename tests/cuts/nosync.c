/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* For LD_PRELOAD: a daemon that only pretends to sync; with ONLY defined, the file whose path ends with that. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

static int is_meant(int fd)
{
#ifdef ONLY
    char link[40], path[4096] = "";
    size_t length, end = strlen(ONLY);

    snprintf(link, sizeof(link), "/proc/self/fd/%d", fd);
    if (readlink(link, path, sizeof(path) - 1) < 0)
        return 0;
    length = strlen(path);
    return length >= end && strcmp(path + length - end, ONLY) == 0;
#else
    (void)fd;
    return 1;
#endif
}

static int pretend(int fd)
{
    return fcntl(fd, F_GETFD) < 0 ? -1 : 0;
}

int fsync(int fd)
{
    return is_meant(fd) ? pretend(fd) : (int)syscall(SYS_fsync, fd);
}

int fdatasync(int fd)
{
    return is_meant(fd) ? pretend(fd) : (int)syscall(SYS_fdatasync, fd);
}

int syncfs(int fd)
{
    return is_meant(fd) ? pretend(fd) : (int)syscall(SYS_syncfs, fd);
}

int sync_file_range(int fd, off64_t offset, off64_t length, unsigned flags)
{
    return is_meant(fd) ? pretend(fd) : (int)syscall(SYS_sync_file_range, fd, offset, length, flags);
}
