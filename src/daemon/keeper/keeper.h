/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

/*
 * The thread that forgets by itself what wayback.conf gives up. What and when is decided by policy/keeper.h, and done
 * by maintain/prune/prune.h, at any instant of which the daemon may be killed: the next one goes on.
 *
 * Nobody waits for it longer than for another change: what is long (reading logs, and writing them anew) is done
 * without a lock that a change takes, by a second thread at the lowest priority for processor and disk; what needs the
 * tree by this one, at the priority of all, since whoever has the tree must not be the one whom everybody overtakes.
 * Where a change waits for room (wb_keeper_make_room), the second thread gives up, and room is made at the priority of
 * all.
 */

#include "daemon/core/session.h"
#include "policy/policy.h"

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
 * onfull=prune: a request that cannot be recorded for want of room, from when that shows until it has ended. What it is
 * about may be of the past: the state of a moment that is pinned stays until then, whatever else goes for its room.
 * Where nothing else may go, it is refused, and pins nothing any more: nobody else is refused for its sake.
 */
enum wb_space_waiter_state { WB_WAITER_RESTS, WB_WAITER_WAITS, WB_WAITER_GRANTED, WB_WAITER_REFUSED };
struct wb_space_waiter {
    int64_t pinned; /* 0: nothing */
    enum wb_space_waiter_state state;
    bool seen; /* by who answers */
    struct wb_space_waiter *next;
};
void wb_space_waiter_add(struct wb_session *session, struct wb_space_waiter *waiter, int64_t pinned);
void wb_space_waiter_remove(struct wb_session *session, struct wb_space_waiter *waiter);

/*
 * What may go for it goes, the oldest first; waits for that, with no lock held, until the monotonic time `until` in us.
 * Whether anything went; not where too many wait.
 */
bool wb_keeper_make_room(struct wb_session *session, struct wb_space_waiter *waiter, int64_t until);

/* So many bytes are made free at a time, if so much may go. */
uint64_t wb_keeper_room_at_once(struct wb_session *session);

/* Whether what is given up in the store gives room to the tree as well. */
bool wb_keeper_is_with_tree(const struct wb_session *session);

/* Whether less is free than reserve says, or the history larger than max-size, and nothing more may go for it. */
bool wb_keeper_is_short(struct wb_session *session);

/*
 * max-size: before a change, with no lock held. While the history is nearly that large, or larger, and something may
 * go for it, waits for a moment, 10 ms at most, so that changes do not come faster than what is old can go.
 */
void wb_keeper_throttle(struct wb_session *session);

/* What the policy says of ages and room. 0; -ENODATA: none has been read. */
struct wb_control_budget;
int wb_keeper_fill_budget(struct wb_session *session, struct wb_control_budget *ret);

/*
 * user-max-size: before a change of that user, with no lock held: held back for a moment while it is nearly reached.
 * False: it is reached, and nothing may go for it.
 */
bool wb_keeper_may_spend(struct wb_session *session, uint32_t uid);
/* The same with locks held: whether it is reached now. */
bool wb_keeper_has_spent(struct wb_session *session, uint32_t uid);

/* The store changes place: what is held in the old one is let go of. */
void wb_keeper_leave_place(struct wb_session *session);

/* From now on this holds. Takes what is in *policy. Before wb_keeper_start, and without one, nothing. */
void wb_keeper_set(struct wb_session *session, struct wb_policy *policy);
