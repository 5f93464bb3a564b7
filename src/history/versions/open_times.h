/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

/*
 * At which times something was open to somebody. Between two changes of rights, or of place, of it and of the
 * directories above it the answer is the same; so it is asked for once between any two of them.
 */

#include "history/history.h"

/* Whether `spot` is open to whom it is asked for, as it was at its T: 0 or -EACCES. */
typedef int (*wb_open_ask)(void *data, struct wb_spot *spot);

/*
 * When rights changed, of what was asked about before: directories above many others are not read for each. What
 * it knows holds up to the first moment it was used with, so use it for older ones only. Bounded; for one thread.
 */
struct wb_rights_memo;
struct wb_rights_memo *wb_rights_memo_new(void);
struct wb_rights_memo *wb_rights_memo_free(struct wb_rights_memo *memo);

struct wb_open_times;

/* The times up to the spot's T at which `ask` allows it; `memo` may be NULL. 0 or -errno. */
int wb_open_times_new(struct wb_history *history, struct wb_spot *spot, wb_open_ask ask, void *data,
                      struct wb_rights_memo *memo, struct wb_open_times **ret);
struct wb_open_times *wb_open_times_free(struct wb_open_times *times);

/* Whether `when` is known about: no moment too many changes back is, nor one later than the spot's T. */
bool wb_open_times_know(const struct wb_open_times *times, int64_t when);

/* Whether any of [first, last) is among them. */
bool wb_open_times_meet(const struct wb_open_times *times, int64_t first, int64_t last);

/* Whether all of them from `first` on are among them. */
bool wb_open_times_hold(const struct wb_open_times *times, int64_t first);
