/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "store/tables/pins.h"

#include "base/cleanup.h"
#include <errno.h>
#include <fcntl.h>

/* Bytes for processes that thin, one after the other, so that a process that waits for a byte does not wait for the
 * next; no moment is so early. */
#define HOLDS (1 << 20)
#define WAIT_US (30 * G_USEC_PER_SEC)
#define STEP_US 1000

static int lock_bytes(const struct wb_store *store, int command, short type, off_t first, off_t length,
                      struct flock *ret)
{
    *ret = (struct flock){.l_type = type, .l_whence = SEEK_SET, .l_start = first, .l_len = length};
    return fcntl(store->dir_fd, command, ret) < 0 ? -errno : 0;
}

/* ---- pinning --------------------------------------------------------------------------------- */

/* Waits until each byte that was held at the time of the call has been released. */
static int wait_for_holds(const struct wb_store *store)
{
    int64_t until = g_get_monotonic_time() + WAIT_US;
    struct flock found;
    off_t first = 0;

    while (first < HOLDS) {
        int r = lock_bytes(store, F_OFD_GETLK, F_WRLCK, first, HOLDS - first, &found);

        if (r < 0 || found.l_type == F_UNLCK)
            return r;
        first = found.l_start;
        while ((r = lock_bytes(store, F_OFD_GETLK, F_WRLCK, first, 1, &found)) == 0 && found.l_type != F_UNLCK) {
            if (g_get_monotonic_time() > until)
                return -EBUSY;
            g_usleep(STEP_US);
        }
        if (r < 0)
            return r;
        first++;
    }
    return 0;
}

static int pin(struct wb_store *store, off_t first, off_t length)
{
    struct flock lock;
    int r = lock_bytes(store, F_OFD_SETLK, F_RDLCK, first, length, &lock);

    /* On a file system without such locks no process can hold pins, and so none thins. */
    return r < 0 ? 0 : wait_for_holds(store);
}

int wb_store_pin(struct wb_store *store, int64_t when)
{
    return pin(store, (off_t)MAX(when, HOLDS), 1);
}

int wb_store_pin_all(struct wb_store *store)
{
    return pin(store, HOLDS, 0);
}

/* Locks belong to the open file description: those of another descriptor are released on their own. */
int wb_store_pin_briefly(struct wb_store *store)
{
    _cleanup_close_ int fd = openat(store->dir_fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    struct flock lock = {.l_type = F_RDLCK, .l_whence = SEEK_SET, .l_start = HOLDS};
    int r;

    if (fd < 0)
        return -errno;
    r = fcntl(fd, F_OFD_SETLK, &lock) < 0 ? 0 : wait_for_holds(store);
    return r < 0 ? r : wb_steal_fd(&fd);
}

/* ---- thinning -------------------------------------------------------------------------------- */

int wb_store_hold_pins(struct wb_store *store, unsigned *ret_hold)
{
    struct flock lock;

    *ret_hold = atomic_fetch_add(&store->holds, 1) % HOLDS;
    return lock_bytes(store, F_OFD_SETLK, F_RDLCK, *ret_hold, 1, &lock);
}

void wb_store_release_pins(struct wb_store *store, unsigned hold)
{
    struct flock lock;

    lock_bytes(store, F_OFD_SETLK, F_UNLCK, hold, 1, &lock);
}

struct range {
    off_t first, last;
};

/* The kernel reports any one lock in a range: then the ranges before and behind it are queried. */
int wb_store_pinned(const struct wb_store *store, GArray *moments)
{
    g_autoptr(GArray) ranges = g_array_new(FALSE, FALSE, sizeof(struct range));
    struct flock found;

    g_array_append_val(ranges, ((struct range){HOLDS, INT64_MAX}));
    while (ranges->len > 0) {
        struct range range = g_array_index(ranges, struct range, ranges->len - 1);
        off_t length = range.last - range.first + (range.last < INT64_MAX), end;
        int r = lock_bytes(store, F_OFD_GETLK, F_WRLCK, range.first, length, &found);

        g_array_set_size(ranges, ranges->len - 1);
        if (r < 0)
            return r;
        if (found.l_type == F_UNLCK)
            continue;
        if (found.l_len == 0)
            return -EBUSY;
        end = found.l_start + found.l_len - 1;
        for (off_t at = MAX(found.l_start, range.first); at <= MIN(end, range.last); at++)
            g_array_append_val(moments, ((int64_t){at}));
        if (found.l_start > range.first)
            g_array_append_val(ranges, ((struct range){range.first, found.l_start - 1}));
        if (end < range.last)
            g_array_append_val(ranges, ((struct range){end + 1, range.last}));
    }
    return 0;
}
