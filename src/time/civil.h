/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

/*
 * Conversion between instants and calendar dates. The results do not depend on earlier calls (glibc's mktime guesses
 * from its last result when the clocks are set back). Thread-safe.
 */

#include <stdbool.h>
#include <stdint.h>

struct wb_civil {
    int year, month, day; /* month 1..12 */
    int hour, minute, second;
};

/* Whether this date and time of day exist (leap seconds do not). */
bool wb_civil_valid(const struct wb_civil *civil);

/* Seconds since the epoch, taking `civil` as UTC. */
int64_t wb_civil_utc(const struct wb_civil *civil);

/*
 * The same in local time. If two instants have the same local time, the earlier one; a local time that the clocks
 * skipped continues from before the skip (02:30 becomes 03:30, and a skipped midnight becomes the beginning of its
 * day).
 */
int64_t wb_civil_local(const struct wb_civil *civil);

/* The local date and time at an instant, and its offset from UTC in seconds (positive: ahead). */
void wb_civil_at(int64_t seconds, struct wb_civil *ret, int *ret_offset);

/* The same for a given offset from UTC. */
void wb_civil_at_offset(int64_t seconds, int offset, struct wb_civil *ret);
