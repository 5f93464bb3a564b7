/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

/*
 * Between instants and dates on a calendar, with answers that do not depend on earlier calls
 * (glibc's mktime guesses from its last result where the clocks are set back). Thread-safe.
 */

#include <stdbool.h>
#include <stdint.h>

struct wb_civil {
    int year, month, day; /* month 1..12 */
    int hour, minute, second;
};

/* Whether there is such a date and time of day (leap seconds: no). */
bool wb_civil_valid(const struct wb_civil *civil);

/* Seconds since the epoch, taking `civil` as UTC. */
int64_t wb_civil_utc(const struct wb_civil *civil);

/*
 * The same in local time. Of two instants with one name the earlier; a time that the clocks
 * jumped over is counted on from before the jump (02:30 is 03:30 then, and a midnight that was
 * jumped over is the beginning of its day).
 */
int64_t wb_civil_local(const struct wb_civil *civil);

/* The local date and time at an instant, and how far it is ahead of UTC in seconds. */
void wb_civil_at(int64_t seconds, struct wb_civil *ret, int *ret_offset);

/* The same for a given offset from UTC. */
void wb_civil_at_offset(int64_t seconds, int offset, struct wb_civil *ret);
