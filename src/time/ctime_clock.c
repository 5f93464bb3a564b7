/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "time/ctime_clock.h"

#include "wayback/when.h"
#include <time.h>

static int64_t nanoseconds(struct timespec now)
{
    return now.tv_sec * WB_WHEN_SECOND + now.tv_nsec;
}

int64_t wb_ctime_clock(void)
{
    struct timespec now;

    clock_gettime(CLOCK_REALTIME_COARSE, &now);
    return nanoseconds(now);
}

int64_t wb_ctime_latest(void)
{
    struct timespec now;

    timespec_get(&now, TIME_UTC);
    return nanoseconds(now);
}

int64_t wb_ctime_next_tick(void)
{
    static const struct timespec pause = {.tv_nsec = 200 * 1000};
    int64_t now = wb_ctime_latest(), next;

    /* A ctime may be finer than the clock that it comes from (Linux 6.13), and later; or the clock was set back. */
    while ((next = wb_ctime_clock()) <= now && wb_ctime_latest() >= now)
        nanosleep(&pause, NULL);
    return next;
}
