/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

/* The clock that the kernel takes ctimes from, in nanoseconds since the epoch. */

#include "wayback/when.h"
#include <stdint.h>

/* CLOCK_REALTIME_COARSE: no later ctime of the kernel is older than this. */
int64_t wb_ctime_clock(void);

/* A time that no ctime given by the kernel so far exceeds. */
int64_t wb_ctime_latest(void);

/*
 * Waits for the next tick of that clock (milliseconds), and returns it. A change by another process a moment ago may
 * have the ctime of the tick before.
 */
int64_t wb_ctime_next_tick(void);

/*
 * The latest moment of a change that gave an object that time. A file system that keeps whole seconds (ext4 with
 * inodes of 128 bytes) cuts off the rest; on others, next to no change is made at a whole second.
 */
static inline int64_t wb_ctime_end(int64_t ctime)
{
    return ctime % WB_WHEN_SECOND == 0 ? ctime + WB_WHEN_SECOND - 1 : ctime;
}
