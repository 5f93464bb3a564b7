/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

/* Ages and durations as people write them: "1.5h", "10 min", "1h30m", "a year and 2 months". */

#include "time/when_scan.h"

struct wb_age {
    int64_t nanoseconds;
    int64_t months; /* how long these are depends on the date from which they are counted */
};

/* Consumes an age, and what separates it from the next word. Each unit occurs at most once, longer ones first. */
bool wb_age_scan(struct wb_scanner *in, struct wb_age *ret);
