/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

/*
 * Which versions of one file stay. A pure function: no file is opened, no clock is read.
 *
 * A version is what showed from one change until just before the next, and *instants* are what is wanted: all of
 * the last `keep`; the end of each hour (each `step` since the epoch, in UTC, so that it moves with no zone) of
 * the last two days (`span`); the pins. A version that shows at a wanted instant stays. So what is written once
 * and overwritten a year later stays as long as what is written every minute: the age of a version is how long
 * ago it was replaced, for that is when somebody may miss it.
 *
 * The newest `least` stay, and the present always does. Of what nothing but a landmark holds, at most `most` less
 * `least` stay: those whose time is up last. (If the oldest went first, the end of a fine landmark would make room
 * for a coarse one that has gone already.)
 *
 * It follows, and tests/integration/test_decide.py holds it to it, that what is dropped once is wanted by no later
 * decision; that deciding often or seldom leaves the same; that deciding again changes nothing.
 */

#include "policy/policy.h"

/* What showed from `from` until just before `until`. WB_WHEN_PRESENT: it is the present. */
struct wb_shown {
    int64_t from, until;
};

/*
 * `list`: `from` rises, and no `until` is above the next `from`; it is below it where what was between them is gone:
 * there, the one before it shows, which a pin of such a moment holds.
 * `pins` rise. `stays`: one for each of the list.
 *
 * In O(n log n). Returns how many stay, or -ENOMEM.
 */
int64_t wb_decide(const struct wb_retention *retention, const struct wb_shown *list, size_t count,
                  const int64_t *pins, size_t pin_count, int64_t now, bool *stays);
