/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

/*
 * The time by which ages are computed. A wall clock that is set far ahead by mistake makes all history old at once, and
 * history that is pruned for that reason is lost even after the clock is corrected. So its progress is compared with
 * that of a clock that cannot be set and that also runs while the machine sleeps (CLOCK_BOOTTIME). A pure function: the
 * caller passes both times.
 *
 * As long as the wall clock is not believed, time continues from the last believed value. That ends when the wall clock
 * is set back, or has kept the new time for long: after a long time off, a machine looks the same.
 */

#include <stdbool.h>
#include <stdint.h>

struct wb_clock {
    int64_t known, at; /* it was `known` when the steady clock showed `at` */
    int64_t since;     /* the wall clock is not believed since then, by the steady one */
    int64_t insisted;  /* and was not for so long before (an earlier mount) */
    bool doubted;
};

/* `known`: the latest that was certainly reached; the past, if that is all there is. */
void wb_clock_init(struct wb_clock *clock, int64_t known, int64_t steady);

/* The time, never later than `wall`. `least`, `most`: the ages from which, and at which at last, things go; WB_FOREVER:
 * none do. */
int64_t wb_clock_judge(struct wb_clock *clock, int64_t wall, int64_t steady, int64_t least, int64_t most);

/* For how long it has been doubted; 0: it is not. For the next mount, in `insisted`. */
int64_t wb_clock_insisted(const struct wb_clock *clock, int64_t steady);

/* For so long it is not believed. */
int64_t wb_clock_wait(int64_t most);
