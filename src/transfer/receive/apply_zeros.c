/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Makes a range of a file read as zeros. Holes and zeros that are there already are left alone. */
#include "transfer/receive/apply.h"

#include "base/io.h"
#include <errno.h>
#include <fcntl.h>
#include <glib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static int make_zero(int fd, uint8_t *data, size_t length, uint64_t offset)
{
    int r = wb_pread_exact(fd, data, length, offset);

    if (r < 0 || wb_is_zero(data, length))
        return r;
    if (fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, (off_t)offset, (off_t)length) == 0)
        return 0;
    if (errno != EOPNOTSUPP && errno != ENOSYS)
        return -errno;
    memset(data, 0, length);
    return wb_pwrite_full(fd, data, length, offset);
}

/* The data at or behind `from`, until where it goes; both `end` when there is none. 0 or -errno. */
static int find_data(int fd, uint64_t from, uint64_t end, uint64_t *ret_data, uint64_t *ret_until)
{
    off_t data = lseek(fd, (off_t)from, SEEK_DATA), hole;

    *ret_data = *ret_until = end;
    if (data < 0 && errno == ENXIO)
        return 0;
    if (data < 0 && errno != EINVAL)
        return -errno;
    /* A file system without holes: everything is data. */
    *ret_data = data < 0 ? from : MIN((uint64_t)data, end);
    hole = data < 0 ? -1 : lseek(fd, data, SEEK_HOLE);
    if (hole > 0)
        *ret_until = MIN((uint64_t)hole, end);
    return 0;
}

int wb_apply_zeros(int fd, uint64_t offset, uint64_t length)
{
    g_autofree uint8_t *data = g_try_malloc(WB_FRAME_BYTES_MAX);
    uint64_t at = offset, end, until;
    struct stat st;
    int r = data ? 0 : -ENOMEM;

    if (r == 0 && fstat(fd, &st) < 0)
        r = -errno;
    if (r < 0)
        return r;
    end = MIN(offset + length, (uint64_t)st.st_size);
    while (r == 0 && at < end) {
        r = find_data(fd, at, end, &at, &until);
        for (; r == 0 && at < until; at += MIN(WB_FRAME_BYTES_MAX, until - at))
            r = make_zero(fd, data, (size_t)MIN(WB_FRAME_BYTES_MAX, until - at), at);
    }
    return r;
}
