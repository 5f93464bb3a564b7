/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

/*
 * Full reads and writes, fsync of directories, atomic replacement: system calls with their loops and EINTR handling, in
 * one place. All functions return 0 or a negative errno unless the comment says otherwise.
 */

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>
#include <sys/uio.h>

/*
 * Memory for bytes in transfer between files; release it with free(3). NULL if there is none. The memory begins at a
 * page boundary: some AMD processors copy eight times slower if the destination's offset in its page is 1 to 31 bytes
 * beyond that of the source, and malloc(3) places large blocks 16 bytes behind a page boundary.
 */
void *wb_alloc_transfer(size_t size);

/* Reads up to `length` bytes at `offset`; *ret is less than `length` only at the end of the file. */
int wb_pread_full(int fd, void *data, size_t length, uint64_t offset, size_t *ret);

/* Reads exactly `length` bytes; -ENODATA if the file ends before. */
int wb_pread_exact(int fd, void *data, size_t length, uint64_t offset);

int wb_pwrite_full(int fd, const void *data, size_t length, uint64_t offset);

/* One pwritev if the kernel writes everything at once, otherwise repeated for the remainder. Overwrites `iov`. */
int wb_pwritev_full(int fd, struct iovec *iov, int count, uint64_t offset);

/*
 * Opens a regular file of the store. Refuses a symbolic link (-ELOOP) and any other type without bytes (-EBADMSG). A
 * file that is opened for writing must have no other name, because it would be changed under that name as well
 * (-EMLINK). `flags` are those of open(2); O_TRUNC is applied after these checks. Descriptor or -errno.
 */
int wb_open_own(int dir_fd, const char *path, int flags, mode_t mode);
/* Also returns the file's attributes as they were checked. */
struct stat;
int wb_open_own_stat(int dir_fd, const char *path, int flags, mode_t mode, struct stat *ret);

/*
 * Creates a new file under a temporary name. If the name exists, left by an interrupted attempt or created by another
 * process, it is unlinked and never written to: it may be another name of a different file. Descriptor or -errno.
 */
int wb_create_own(int dir_fd, const char *path, int flags);

/* fsync of the directory itself, after a name was published in it or removed from it. Accepts O_PATH descriptors. */
int wb_fsync_dir(int dir_fd);

/*
 * Publishes `data` as dir_fd/name: writes a temporary file, fsync, rename, fsync of the directory. After a crash the
 * file has its complete old or its complete new content.
 */
int wb_replace_file(int dir_fd, const char *name, const void *data, size_t length, mode_t mode);

/*
 * On a file system that copies on write, asks it to overwrite this empty file in place, so that later writes to
 * allocated blocks need no new space. Failure is ignored.
 */
void wb_ask_for_no_cow(int fd);
/* wb_replace_file with wb_ask_for_no_cow: for a file that is overwritten in place afterwards. */
int wb_replace_file_no_cow(int dir_fd, const char *name, const void *data, size_t length, mode_t mode);

/* Whether `length` bytes are all zero. */
int wb_is_zero(const void *data, size_t length);

/* chmod(2) of the object that a descriptor refers to, O_PATH or not. 0 or -errno. */
int wb_chmod_fd(int fd, mode_t mode);

/* "/proc/self/fd/N": a path for calls that have no *at form. `path` holds 32 bytes. */
const char *wb_fd_path(int fd, char path[32]);
