/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

/* The clock that the kernel takes ctimes from, in nanoseconds since the epoch. */

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
