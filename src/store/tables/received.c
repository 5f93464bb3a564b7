/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "store/tables/received.h"

#include "base/cleanup.h"
#include "base/io.h"
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

int wb_received_read(int dir_fd, struct wb_received *ret)
{
    _cleanup_close_ int fd = wb_open_own(dir_fd, WB_RECEIVED_NAME, O_RDONLY, 0);
    uint8_t data[WB_RECEIVED_SIZE];
    int r;

    if (fd < 0)
        return fd;
    r = wb_pread_exact(fd, data, sizeof(data), 0);
    if (r == 0)
        r = wb_received_decode(data, ret);
    return r == -ENODATA ? -EBADMSG : r;
}

int wb_received_write(int dir_fd, const struct wb_received *received)
{
    uint8_t data[WB_RECEIVED_SIZE];

    wb_received_encode(received, data);
    return wb_replace_file(dir_fd, WB_RECEIVED_NAME, data, sizeof(data), 0600);
}

int wb_received_check(int dir_fd, const char *home, struct wb_error *why)
{
    struct wb_received received;
    int r = wb_received_read(dir_fd, &received);

    if (r == -ENOENT || (r == 0 && received.phase == WB_RECEIVED_REST && received.until > 0))
        return 0;
    if (r == 0 && received.until == 0 && received.phase == WB_RECEIVED_REST)
        return wb_error_set(why, -EINPROGRESS,
                            "the store %s is a copy that has not received a whole stream yet; "
                            "wait for vreceive, or repeat it",
                            home);
    if (r == 0)
        return wb_error_set(why, -EINPROGRESS,
                            "the store %s is a copy that vreceive is updating; if vreceive was "
                            "interrupted, `vreceive --status` completes it",
                            home);
    return wb_error_set(why, r,
                        "the file " WB_RECEIVED_NAME " of the store %s, which has the position of the copy, "
                        "cannot be read: %s",
                        home, strerror(-r));
}

struct wb_erased wb_erased_read(int dir_fd)
{
    _cleanup_close_ int fd = wb_open_own(dir_fd, WB_ERASED_NAME, O_RDONLY, 0);
    uint8_t data[WB_ERASED_SIZE];
    struct wb_erased erased;

    if (fd == -ENOENT)
        return (struct wb_erased){0};
    if (fd >= 0 && wb_pread_exact(fd, data, sizeof(data), 0) == 0 && wb_erased_decode(data, &erased) == 0)
        return erased;
    return (struct wb_erased){INT64_MAX, INT64_MAX};
}

static int mark(int dir_fd, int64_t last, int64_t named)
{
    const struct wb_erased erased = {last, named};
    uint8_t data[WB_ERASED_SIZE];

    wb_erased_encode(&erased, data);
    return wb_replace_file(dir_fd, WB_ERASED_NAME, data, sizeof(data), 0600);
}

int wb_erased_mark(int dir_fd, int64_t when)
{
    return mark(dir_fd, when, when);
}

int wb_erased_mark_thinned(int dir_fd, int64_t when)
{
    int64_t named = wb_erased_read(dir_fd).named;

    return mark(dir_fd, when, named < when ? named : when);
}

void wb_erased_sweep(int dir_fd)
{
    unlinkat(dir_fd, "." WB_ERASED_NAME ".new", 0);
}
