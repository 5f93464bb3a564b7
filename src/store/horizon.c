/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * The moment before which everything was forgotten. It is in the header, which is replaced whole: from then on nobody
 * tells an older state, so that what such states need can be taken away in any order, and by halves.
 */
#include "store/store.h"

#include "base/cleanup.h"
#include "base/io.h"
#include <errno.h>
#include <fcntl.h>

/* Where it cannot be told, nothing but the present may be. */
#define NOT_KNOWN (INT64_MAX - 1)

static int64_t read_horizon(const struct wb_store *store)
{
    _cleanup_close_ int fd = wb_open_own(store->dir_fd, WB_HEADER_NAME, O_RDONLY, 0);
    uint8_t data[WB_HEADER_SIZE];
    struct wb_header header;
    size_t length;

    if (fd < 0 || wb_pread_full(fd, data, sizeof(data), 0, &length) < 0 || wb_header_decode(data, length, &header) < 0)
        return NOT_KNOWN;
    return header.forgotten ? header.created : 0;
}

int64_t wb_store_horizon(const struct wb_store *store)
{
    return store->writable ? atomic_load(&store->horizon) : read_horizon(store);
}

/*
 * A full disk, which may be why history is to be forgotten, has no room for another header. This one is a part of a
 * sector: a power cut leaves it as it was, or as it will be.
 */
static int overwrite(const struct wb_store *store, const uint8_t data[WB_HEADER_SIZE])
{
    _cleanup_close_ int fd = wb_open_own(store->dir_fd, WB_HEADER_NAME, O_RDWR, 0);
    int r = fd < 0 ? fd : wb_pwrite_full(fd, data, WB_HEADER_SIZE, 0);

    return r == 0 && fdatasync(fd) < 0 ? -errno : r;
}

int wb_store_forget_before(struct wb_store *store, int64_t when)
{
    struct wb_header header = store->header;
    uint8_t data[WB_HEADER_SIZE];
    int r;

    if (!store->writable)
        return -EROFS;
    /* Nor is anything known of what was before the store was made. */
    if (when <= __atomic_load_n(&store->header.created, __ATOMIC_RELAXED))
        return 0;
    header.created = when;
    header.forgotten = 1;
    wb_header_encode(&header, data);
    r = wb_replace_file(store->dir_fd, WB_HEADER_NAME, data, sizeof(data), 0600);
    if (r == -ENOSPC || r == -EDQUOT)
        r = overwrite(store, data);
    /* What failed may have come to pass all the same. */
    if (r < 0 && read_horizon(store) != when)
        return r;
    __atomic_store_n(&store->header.created, when, __ATOMIC_RELAXED);
    store->header.forgotten = 1;
    atomic_store(&store->horizon, when);
    return r;
}
