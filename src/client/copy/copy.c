/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "client/copy/copy.h"

#include "client/fd.h"
#include "client/watch.h"
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <string.h>

#define BUFFER_SIZE (1u << 20)
/* Bytes compared at once, and bytes that become a hole if all are zero. */
#define BLOCK_SIZE (128u << 10)
#define HOLE_SIZE 4096u

static bool is_zero(const char *data, size_t length)
{
    return length == 0 || (data[0] == 0 && memcmp(data, data + 1, length - 1) == 0);
}

/* Writes what is not zero of `data`; the rest of the (new) file is a hole already. */
static int write_sparse(int to, const char *data, size_t length, int64_t offset)
{
    size_t at = 0;

    while (at < length) {
        size_t end = at;
        int r;

        while (end < length && !is_zero(data + end, MIN(HOLE_SIZE, length - end)))
            end += MIN(HOLE_SIZE, length - end);
        if (end > at) {
            r = wb_fd_write(to, data + at, end - at, offset + (int64_t)at);
            if (r < 0)
                return r;
        }
        at = end + HOLE_SIZE;
    }
    return 0;
}

int wb_copy_data(int from, int to)
{
    g_autofree char *buffer = g_malloc(BUFFER_SIZE);
    struct wb_data_walk walk;
    struct stat st;
    int64_t offset = 0;

    if (fstat(from, &st) < 0)
        return -errno;
    wb_data_walk_begin(&walk, from, st.st_size);
    while ((offset = wb_data_walk_next(&walk, offset)) < st.st_size) {
        ssize_t n = wb_fd_read(from, buffer, MIN(BUFFER_SIZE, (uint64_t)(st.st_size - offset)), offset);
        int r;

        if (n <= 0)
            return n < 0 ? (int)n : -EIO;
        if (wb_watch_stopped())
            return -EINTR;
        r = write_sparse(to, buffer, (size_t)n, offset);
        if (r < 0)
            return r;
        offset += n;
        wb_watch_progress(0, (uint64_t)n);
    }
    return ftruncate(to, st.st_size) < 0 ? -errno : 0;
}

int wb_copy_stream(int from, int to)
{
    g_autofree char *buffer = g_malloc(BUFFER_SIZE);
    int64_t offset = 0;

    for (;;) {
        ssize_t n = wb_fd_read(from, buffer, BUFFER_SIZE, offset);
        int r;

        if (n <= 0)
            return (int)n;
        if (wb_watch_stopped())
            return -EINTR;
        r = wb_fd_write(to, buffer, (size_t)n, -1);
        if (r < 0)
            return r;
        offset += n;
        wb_watch_progress(0, (uint64_t)n);
    }
}

/* One block that differs. Zeros become a hole again where the file system can. */
static int put_block(int to, const char *data, size_t length, int64_t offset)
{
    if (is_zero(data, length) &&
        fallocate(to, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, offset, (off_t)length) == 0)
        return 0;
    return wb_fd_write(to, data, length, offset);
}

/* Both files while they are compared. */
struct walks {
    struct wb_data_walk from, to;
};

/* The block at or after `offset` in which one of them has data; the size of `from` if there is none. */
static int64_t next_block(struct walks *walks, int64_t offset)
{
    int64_t from = wb_data_walk_next(&walks->from, offset), to = wb_data_walk_next(&walks->to, offset);

    if (to >= walks->to.size)
        to = walks->from.size;
    from = MIN(from, to);
    return from >= walks->from.size ? walks->from.size : from - from % BLOCK_SIZE;
}

/* Reads `length` bytes that are in the file; those of a hole are not asked for. */
static ssize_t read_block(struct wb_data_walk *walk, char *data, size_t length, int64_t offset)
{
    if (wb_data_walk_next(walk, offset) < offset + (int64_t)length)
        return wb_fd_read(walk->fd, data, length, offset);
    memset(data, 0, length);
    return (ssize_t)length;
}

/* Compares `length` bytes at `offset`; `have` of them exist in `to`. */
static int compare_block(struct walks *walks, char *buffer, size_t length, size_t have, int64_t offset, bool dry,
                         uint64_t *changed)
{
    char *old = buffer + BLOCK_SIZE;
    ssize_t n = read_block(&walks->from, buffer, length, offset);

    if (n < 0)
        return (int)n;
    if ((size_t)n < length)
        return -EIO;
    memset(old, 0, length);
    n = have > 0 ? read_block(&walks->to, old, have, offset) : 0;
    if (n < 0)
        return (int)n;
    if (memcmp(buffer, old, length) == 0)
        return 0;
    *changed += length;
    return dry ? 0 : put_block(walks->to.fd, buffer, length, offset);
}

int wb_copy_equal(int from, int to)
{
    g_autofree char *buffer = g_malloc(2 * BLOCK_SIZE);
    struct walks walks;
    struct stat want, have;
    uint64_t changed = 0;

    if (fstat(from, &want) < 0 || fstat(to, &have) < 0)
        return -errno;
    if (want.st_size != have.st_size)
        return 0;
    wb_data_walk_begin(&walks.from, from, want.st_size);
    wb_data_walk_begin(&walks.to, to, have.st_size);
    for (int64_t offset = 0; (offset = next_block(&walks, offset)) < want.st_size && changed == 0;
         offset += BLOCK_SIZE) {
        size_t length = (size_t)MIN((int64_t)BLOCK_SIZE, want.st_size - offset);
        int r = compare_block(&walks, buffer, length, length, offset, true, &changed);

        if (r < 0)
            return r;
        if (wb_watch_stopped())
            return -EINTR;
        wb_watch_progress(0, length);
    }
    return changed == 0;
}

int wb_copy_differences(int from, int to, bool dry, uint64_t *ret_changed)
{
    g_autofree char *buffer = g_malloc(2 * BLOCK_SIZE);
    struct walks walks;
    struct stat want, have;
    int64_t offset = 0;

    *ret_changed = 0;
    if (fstat(from, &want) < 0 || fstat(to, &have) < 0)
        return -errno;
    if (have.st_size > want.st_size) {
        *ret_changed += (uint64_t)(have.st_size - want.st_size);
        if (!dry && ftruncate(to, want.st_size) < 0)
            return -errno;
    }
    wb_data_walk_begin(&walks.from, from, want.st_size);
    wb_data_walk_begin(&walks.to, to, MIN(have.st_size, want.st_size));
    while ((offset = next_block(&walks, offset)) < want.st_size) {
        size_t length = (size_t)MIN((int64_t)BLOCK_SIZE, want.st_size - offset);
        size_t there = offset < have.st_size ? (size_t)MIN((int64_t)length, have.st_size - offset) : 0;
        int r = compare_block(&walks, buffer, length, there, offset, dry, ret_changed);

        if (r < 0)
            return r;
        /* A file that is being changed is finished. */
        if (dry && wb_watch_stopped())
            return -EINTR;
        offset += (int64_t)length;
        wb_watch_progress(0, length);
    }
    if (have.st_size < want.st_size) {
        if (*ret_changed == 0)
            *ret_changed = (uint64_t)(want.st_size - have.st_size);
        if (!dry && ftruncate(to, want.st_size) < 0)
            return -errno;
    }
    return 0;
}

int wb_copy_make(int from_dir, const char *from_name, const struct stat *st, int to_dir, const char *to_name)
{
    char target[PATH_MAX + 1] = "";
    ssize_t n = S_ISLNK(st->st_mode) ? readlinkat(from_dir, from_name, target, PATH_MAX) : 0;

    if (n < 0)
        return -errno;
    target[n] = '\0';
    return wb_held_make(to_dir, to_name, st->st_mode, st->st_rdev, target);
}
