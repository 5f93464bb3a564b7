/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "daemon/core/below.h"

void wb_below_met(struct wb_inode *inode, const struct stat *st)
{
    int64_t unseen = WB_SIZE_UNSEEN;

    if (S_ISREG(st->st_mode))
        atomic_compare_exchange_strong_explicit(&inode->size_left, &unseen, (int64_t)st->st_size + 1,
                                                memory_order_relaxed, memory_order_relaxed);
}

void wb_below_compare(struct wb_inode *inode, const struct stat *st)
{
    int64_t left = atomic_load_explicit(&inode->size_left, memory_order_relaxed), now = (int64_t)st->st_size + 1;

    if (!S_ISREG(st->st_mode) || left == now)
        return;
    if (left > 0)
        atomic_store_explicit(&inode->resized_below, true, memory_order_relaxed);
    wb_below_note(inode, now);
}

bool wb_below_is_resized(struct wb_inode *inode, int fd)
{
    struct stat st;

    /* Whoever changes the file looks at it as well. */
    if (pthread_mutex_trylock(&inode->lock) == 0) {
        if (fstat(fd, &st) == 0)
            wb_below_compare(inode, &st);
        pthread_mutex_unlock(&inode->lock);
    }
    return atomic_load_explicit(&inode->resized_below, memory_order_relaxed);
}
