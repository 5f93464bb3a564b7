/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

/*
 * Descriptors in the tools: cleanup, full reads and writes, names of a directory. wayback/held.h has how an object is
 * opened and held.
 */

#include <dirent.h>
#include <glib.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/stat.h>
#include <unistd.h>
#include "wayback/held.h"

static inline void wb_fd_closep(int *fd)
{
    if (*fd >= 0)
        close(*fd);
}
#define _cleanup_fd_ __attribute__((cleanup(wb_fd_closep)))

static inline int wb_fd_steal(int *fd)
{
    int stolen = *fd;

    *fd = -1;
    return stolen;
}

/* Inode numbers of the past have this bit, those of the present never. */
#define WB_PAST_INODE (UINT64_C(1) << 63)

/* Opens the directory that holds the last component of `path`; *ret_name points into `path`,
 * "." if `path` is dir_fd itself. A descriptor or -errno; -EXDEV: the path leads into another mount. */
int wb_fd_open_parent(int dir_fd, const char *path, const char **ret_name);

/* Whether something is mounted at dir_fd/name, or (`name` "") `dir_fd` is the root of a mount. */
bool wb_fd_is_mount(int dir_fd, const char *name);

#define WB_FD_PATH_MAX 32

/* The path of what `fd` holds, for calls that take no descriptor; they must follow links. Returns `path`. */
const char *wb_fd_proc_path(int fd, char path[WB_FD_PATH_MAX]);

/* All of `length` bytes; at `offset`, or sequentially if it is negative. 0 or -errno. */
int wb_fd_write(int fd, const void *data, size_t length, int64_t offset);

/* Up to `length` bytes at `offset`, less only at the end. Bytes or -errno. */
ssize_t wb_fd_read(int fd, void *data, size_t length, int64_t offset);

/*
 * Where a file has data. Calls with growing offsets seek once for each range, not for each block; `fd` -1 stands for an
 * empty file. Beginning writes dirty pages back, because only the file system below is asked for holes.
 */
struct wb_data_walk {
    int fd;
    int64_t size, begin, end; /* of the file; of the range found last */
};
void wb_data_walk_begin(struct wb_data_walk *walk, int fd, int64_t size);

/* The first data at or after `offset`; the size of the file if there is none. */
int64_t wb_data_walk_next(struct wb_data_walk *walk, int64_t offset);

/*
 * The names in a directory without "." and "..", in byte order, and without a directory of snapshots that
 * the mount shows in it (-o snapdir=visible). `fd` may be O_PATH. NULL with errno set on failure.
 */
GPtrArray *wb_fd_names(int fd);

/* Whether `names` (from wb_fd_names) has `name`. */
int wb_fd_names_has(const GPtrArray *names, const char *name);

/* Whether there is a mount at dir_fd/name or below it. */
bool wb_fd_has_mount(int dir_fd, const char *name);

/* Removes dir_fd/name with all below it, of any type, never following a link. 0 or -errno; -EXDEV: there is a mount at
 * or below it, whose content stays. */
int wb_fd_remove_all(int dir_fd, const char *name);
