/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

/*
 * Decides which versions of one file are kept. A pure function: it opens no file and reads no clock.
 *
 * A version is the state from one change until just before the next, and *instants* are the times to keep: all times
 * of the last `keep`; the end of each hour (each `step` since the epoch, in UTC, so that it moves with no zone) of
 * the last two days (`span`); the pins. A version that was shown at such an instant is kept. So a version that is
 * overwritten after a year is kept as long as one that is overwritten after a minute: the age of a version is the time
 * since it was replaced, because that is when a user may begin to miss it.
 *
 * The newest `least` are kept, and the present always is. Of the versions that only a landmark holds, at most `most`
 * less `least` are kept: those that expire last. (If the oldest were dropped first, the end of a fine landmark would
 * make room for a coarse one that was dropped already.)
 *
 * It follows, and tests/integration/test_decide.py verifies, that no later decision needs a version that was dropped
 * before; that the result does not depend on how often decisions are made; that repeating a decision changes nothing.
 */

#include "policy/policy.h"

/* The state from `from` until just before `until`. WB_WHEN_PRESENT: it is the present. */
struct wb_shown {
    int64_t from, until;
};

/*
 * `list`: `from` rises, and no `until` is above the next `from`; it is below it if versions between them were dropped:
 * the one before is shown for such a moment, and a pin of the moment holds that one.
 * `pins` rise. `stays`: one for each of the list.
 *
 * In O(n log n). Returns how many are kept, or -ENOMEM.
 */
int64_t wb_decide(const struct wb_retention *retention, const struct wb_shown *list, size_t count,
                  const int64_t *pins, size_t pin_count, int64_t now, bool *stays);
