/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

/*
 * The times at which a user had access to an object. Between two changes of rights, or of place, of the object and of
 * the directories above it the answer is the same; so it is determined once between any two of them.
 */

#include "history/history.h"

/* Whether the user has access to `revision`, as it was at its T: 0 or -EACCES. */
typedef int (*wb_open_ask)(void *data, struct wb_revision *revision);

/*
 * Remembers when rights changed, so that directories above many objects are not read for each. Valid for times up to
 * the first moment it was used with, so use it only for older ones. Bounded; for one thread.
 */
struct wb_rights_memo;
struct wb_rights_memo *wb_rights_memo_new(void);
struct wb_rights_memo *wb_rights_memo_free(struct wb_rights_memo *memo);

struct wb_access_intervals;

/* The times up to the revision's T at which `ask` permits it; `memo` may be NULL. 0 or -errno. */
int wb_access_intervals_new(struct wb_history *history, struct wb_revision *revision, wb_open_ask ask, void *data,
                            struct wb_rights_memo *memo, struct wb_access_intervals **ret);
struct wb_access_intervals *wb_access_intervals_free(struct wb_access_intervals *times);

/* Whether the answer for `when` is known: not for times before too many changes, nor after the revision's T. */
bool wb_access_intervals_know(const struct wb_access_intervals *times, int64_t when);

/* Whether access was permitted at any time of [first, last). */
bool wb_access_intervals_meet(const struct wb_access_intervals *times, int64_t first, int64_t last);

/* Whether access was permitted at all times from `first` on. */
bool wb_access_intervals_hold(const struct wb_access_intervals *times, int64_t first);
