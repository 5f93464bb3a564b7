/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "store/tables/clock.h"

#include "base/cleanup.h"
#include "base/io.h"
#include <errno.h>
#include <fcntl.h>
#include <unistd.h>

int64_t wb_store_clock_noted(const struct wb_store *store, int64_t *ret_insisted)
{
    _cleanup_close_ int fd = wb_open_own(store->dir_fd, WB_CLOCK_NAME, O_RDONLY, 0);
    uint8_t data[WB_CLOCK_SIZE + 1];
    int64_t known = 0;
    size_t length;

    *ret_insisted = 0;
    if (fd < 0 || wb_pread_full(fd, data, sizeof(data), 0, &length) < 0)
        return 0;
    return wb_clock_note_decode(data, length, &known, ret_insisted) == 0 ? known : 0;
}

int wb_store_note_clock(const struct wb_store *store, int64_t known, int64_t insisted)
{
    uint8_t data[WB_CLOCK_SIZE];

    if (known == 0)
        return unlinkat(store->dir_fd, WB_CLOCK_NAME, 0) < 0 && errno != ENOENT ? -errno : 0;
    wb_clock_note_encode(known, insisted, data);
    return wb_replace_file(store->dir_fd, WB_CLOCK_NAME, data, sizeof(data), 0600);
}
