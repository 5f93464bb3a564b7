/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

/*
 * The thread that forgets by itself what wayback.conf gives up. What and when is decided by keep/keeper.h, and done by
 * keep/prune.h, at any instant of which the daemon may be killed: the next one goes on.
 *
 * Nobody waits for it longer than for another change: what is long (reading logs, and writing them anew) is done
 * without a lock that a change takes, by a second thread at the lowest priority for processor and disk; what needs the
 * tree by this one, at the priority of all, since whoever has the tree must not be the one whom everybody overtakes.
 * Where a change waits for room (wb_keeper_make_room), the second thread gives up, and room is made at the priority of
 * all.
 */

#include "daemon/session.h"
#include "keep/policy.h"

/* For a recording session, once it is mounted; 0 or -errno. */
int wb_keeper_start(struct wb_session *session);
/* Before it is unmounted: what is being forgotten is given up. */
void wb_keeper_stop(struct wb_session *session);

/* Bytes that would go as soon as room is short: as good as free. */
uint64_t wb_keeper_reclaimable(struct wb_session *session);

/*
 * So many requests may wait for room at once, each of which has a worker to itself. The others are for what the keeper
 * waits for in turn: the kernel forgets pages of the past only when those that are being read have come.
 */
#define WB_KEEPER_WAITERS 48

/*
 * onfull=prune: a change could not be recorded for want of room. What may go for that goes, the oldest first; waits for
 * it, with no lock held, until the monotonic time `until` in us. Whether anything went; not where too many wait.
 */
bool wb_keeper_make_room(struct wb_session *session, int64_t until);

/*
 * max-size: before a change, with no lock held. While the history is larger, and something may go for that, waits for a
 * moment, 10 ms at most, so that changes do not come faster than what is old can go.
 */
void wb_keeper_hold_back(struct wb_session *session);

/* What the policy says of ages and room. 0; -ENODATA: none has been read. */
struct wb_control_budget;
int wb_keeper_tell_budget(struct wb_session *session, struct wb_control_budget *ret);

/* The store changes place: what is held in the old one is let go of. */
void wb_keeper_leave_place(struct wb_session *session);

/* From now on this holds. Takes what is in *policy. Before wb_keeper_start, and without one, nothing. */
void wb_keeper_set(struct wb_session *session, struct wb_policy *policy);
