/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * The moment before which everything was forgotten. It is in the header, which is replaced whole: from then on no
 * reader returns an older state, so the data that such states need can be deleted in any order, and partly.
 */
#include "store/store.h"

#include "base/cleanup.h"
#include "base/io.h"
#include <errno.h>
#include <fcntl.h>

/* For a header that cannot be read: then only the present may be shown. */
#define NOT_KNOWN (INT64_MAX - 1)

static int read_header(const struct wb_store *store, struct wb_header *header)
{
    _cleanup_close_ int fd = wb_open_own(store->dir_fd, WB_HEADER_NAME, O_RDONLY, 0);
    uint8_t data[WB_HEADER_SIZE];
    size_t length;
    int r = fd < 0 ? fd : wb_pread_full(fd, data, sizeof(data), 0, &length);

    return r < 0 ? r : wb_header_decode(data, length, header);
}

static int64_t read_horizon(const struct wb_store *store)
{
    struct wb_header header;

    if (read_header(store, &header) < 0)
        return NOT_KNOWN;
    return header.forgotten ? header.created : 0;
}

int64_t wb_store_forgotten(const struct wb_store *store)
{
    return atomic_load(&store->forgotten);
}

void wb_store_note_forgotten(struct wb_store *store, int64_t before)
{
    int64_t there = atomic_load(&store->forgotten);

    while (there < before && !atomic_compare_exchange_weak(&store->forgotten, &there, before))
        ;
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

static void set_horizon(struct wb_store *store, int64_t created, bool forgotten)
{
    __atomic_store_n(&store->header.created, created, __ATOMIC_RELAXED);
    store->header.forgotten = forgotten;
    atomic_store(&store->horizon, forgotten ? created : 0);
}

void wb_store_hide_before(struct wb_store *store, int64_t when)
{
    /* Nothing is known of the time before the store was made, either. */
    if (when > store->header.created)
        set_horizon(store, when, true);
}

int wb_store_forget_hidden(struct wb_store *store)
{
    struct wb_header header = store->header, on_disk = {0};
    uint8_t data[WB_HEADER_SIZE];
    int r = read_header(store, &on_disk);

    if (r == 0 && on_disk.created == header.created && on_disk.forgotten == header.forgotten)
        return 0;
    wb_header_encode(&header, data);
    r = wb_replace_file(store->dir_fd, WB_HEADER_NAME, data, sizeof(data), 0600);
    if (r == -ENOSPC || r == -EDQUOT)
        r = overwrite(store, data);
    /*
     * A write that failed may have taken effect all the same. Without knowing that, older states remain hidden, since
     * their data may be partly deleted.
     */
    if (r < 0 && read_header(store, &on_disk) == 0 && on_disk.created != header.created)
        set_horizon(store, on_disk.created, on_disk.forgotten);
    return r;
}
