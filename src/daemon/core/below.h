/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

/*
 * Notices a file whose size somebody changed below the mount, in SRC.
 *
 * The kernel caches sizes for a day and computes the offset of an append from the size it has cached, so an append
 * through the mount would overwrite the bytes that were appended below it. A node therefore keeps the size that the
 * last change through the mount left. Once the file had another size, the daemon places appends at the real end, and
 * each open(2) drops the kernel's pages and attributes of the file.
 *
 * O_APPEND alone does not show that the kernel computed the offset: pwritev2(2) with RWF_NOAPPEND looks the same. So
 * offsets are trusted as long as the size was always the expected one.
 */

#include "daemon/core/node.h"
#include <fcntl.h>
#include <sys/types.h>

/* A look at the file; the first one counts. Takes no lock. */
void wb_below_met(struct wb_inode *inode, const struct stat *st);

/* With inode->lock held, before a change: compares the size with the one that the last change left. */
void wb_below_compare(struct wb_inode *inode, const struct stat *st);

/* With inode->lock held, after a change: the size + 1, or WB_SIZE_UNSURE. */
static inline void wb_below_note(struct wb_inode *inode, int64_t size_left)
{
    atomic_store_explicit(&inode->size_left, size_left, memory_order_relaxed);
}

/* Whether the size was ever changed below the mount. Looks, unless a change is under way. */
bool wb_below_is_resized(struct wb_inode *inode, int fd);

/* Whether a write of a descriptor with these flags was meant for the end of the file, `end`, and comes elsewhere. */
static inline bool wb_below_misplaces(const struct wb_inode *inode, int flags, off_t offset, off_t end)
{
    return flags & O_APPEND && offset != end && atomic_load_explicit(&inode->resized_below, memory_order_relaxed);
}
