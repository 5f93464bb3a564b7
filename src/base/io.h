/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

/*
 * Full reads and writes, fsync of directories, atomic replace: the system calls with their loops
 * and their EINTR, in one place. All return 0 or a negative errno unless said otherwise.
 */

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>
#include <sys/uio.h>

/*
 * Memory for bytes on their way between files, free(3) gives it back; NULL: there is none. It begins with a page: some
 * processors of AMD take eight times as long to copy where the place in its page is 1 to 31 bytes further on than in
 * that which is copied, and 16 bytes behind the beginning of a page is where malloc(3) puts what is large.
 */
void *wb_alloc_transfer(size_t size);

/* Reads up to `length` bytes at `offset`; *ret is less than asked only at the end of the file. */
int wb_pread_full(int fd, void *data, size_t length, uint64_t offset, size_t *ret);

/* Reads exactly `length` bytes; -ENODATA where the file ends before. */
int wb_pread_exact(int fd, void *data, size_t length, uint64_t offset);

int wb_pwrite_full(int fd, const void *data, size_t length, uint64_t offset);

/* One pwritev where the kernel takes it whole, else its remainder; `iov` is clobbered. */
int wb_pwritev_full(int fd, struct iovec *iov, int count, uint64_t offset);

/*
 * Opens a regular file of ours: no symbolic link (-ELOOP), nothing else that has no bytes (-EBADMSG). One that is to
 * be written must have no other name, because it would be changed under that name as well (-EMLINK). `flags` as of
 * open(2); O_TRUNC comes after these questions. Descriptor or -errno.
 */
int wb_open_own(int dir_fd, const char *path, int flags, mode_t mode);
/* And what was seen of it then. */
struct stat;
int wb_open_own_stat(int dir_fd, const char *path, int flags, mode_t mode, struct stat *ret);

/*
 * Makes a new file under a name that is only in passing. What has the name, left behind by an interrupted attempt or
 * put there by somebody, is taken away and not written to: it may be another file's name as well. Descriptor or
 * -errno.
 */
int wb_create_own(int dir_fd, const char *path, int flags);

/* fsync of the directory itself (a name published or withdrawn in it). O_PATH fds are accepted. */
int wb_fsync_dir(int dir_fd);

/*
 * Publishes `data` as dir_fd/name: write to a temporary name, fsync, rename, fsync of the
 * directory. After a crash the old or the new content is there, whole.
 */
int wb_replace_file(int dir_fd, const char *name, const void *data, size_t length, mode_t mode);

/*
 * Where the file system writes elsewhere, asks it to write this empty file in its place: later writes to what it has
 * need no new space then. A wish, no more.
 */
void wb_ask_for_no_cow(int fd);
/* As wb_replace_file, and as wb_ask_for_no_cow: for a file that is overwritten from then on. */
int wb_replace_file_no_cow(int dir_fd, const char *name, const void *data, size_t length, mode_t mode);

/* Whether `length` bytes are all zero. */
int wb_is_zero(const void *data, size_t length);

/* chmod(2) of what a descriptor is of, O_PATH or any other. 0 or -errno. */
int wb_chmod_fd(int fd, mode_t mode);

/* "/proc/self/fd/N": a path for calls that have no *at form. `path` holds 32 bytes. */
const char *wb_fd_path(int fd, char path[32]);
