/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

/*
 * Recorded spans: during which times all changes of SRC went through a process that records them.
 *
 * Every change of an object moves its ctime, which nobody can set. So an object whose ctime lies in no
 * recorded span was changed by somebody else: past the mount, with history=none, or by a backup that was
 * restored. Its older states are not what its records and its present make of it (capture/unseen.h).
 *
 * A span grows while changes come; after a short pause the next change begins another. What somebody else
 * does within a span is not noticed. Spans are bounded in number: where there are too many, those with the
 * smallest gaps between them are joined, so that the union only ever grows, and no recorded change is taken
 * for another's. The floor is a moment up to which every object of the tree was checked.
 */

#include "store/store.h"

/*
 * Regular files are another matter than directories after a power cut: slots of `stages` may have been lost
 * (lost_slots.h), and what has a ctime of then counts as changed by nobody who records. `is_dir` says which.
 */

/*
 * For a store that was just opened. From then until wb_spans_end_opening a writer may change anything:
 * everything counts as recorded, and after a kill up to the next opening. 0 or -errno.
 */
int wb_spans_open(struct wb_store *store);
/* From now on each change is between wb_spans_enter and wb_spans_leave. Whoever never calls it need not call those. */
void wb_spans_end_opening(struct wb_store *store);
/* A writer's: the span under way is closed, and everything is durable. */
struct wb_spans *wb_spans_free(struct wb_store *store);

/*
 * Around whatever may change the ctime of an object in SRC; nests, any number of threads. About 60 ns.
 * Nothing happens for a store that is only read.
 */
void wb_spans_enter(struct wb_store *store);
void wb_spans_leave(struct wb_store *store);

static inline void wb_spans_leavep(struct wb_store **store)
{
    wb_spans_leave(*store);
}
static inline struct wb_store *wb_spans_entered(struct wb_store *store)
{
    wb_spans_enter(store);
    return store;
}
/* The rest of this scope. */
#define WB_IN_SPAN(store) \
    __attribute__((cleanup(wb_spans_leavep), unused)) struct wb_store *in_span = wb_spans_entered(store)

/*
 * All that was recorded before `until` (by wb_spans_clock) is on stable storage. With the store on a disk of its own,
 * what has a later ctime after a power cut counts as changed by somebody else: its records may be lost.
 */
void wb_spans_synced(struct wb_store *store, int64_t until);

/* Whether an object with that ctime was last changed by somebody who records. Lock-free where it was. */
bool wb_spans_has(const struct wb_store *store, int64_t ctime, bool is_dir);

/* Whether it may be a power cut that took what was recorded of it. */
bool wb_spans_lost_slot(const struct wb_store *store, int64_t ctime, bool is_dir);

/* The newest moment before that ctime at which everything was recorded. */
int64_t wb_spans_before(const struct wb_store *store, int64_t ctime, bool is_dir);

/*
 * Until when nothing was changed that was not recorded, if nothing had been at `seen`: the end of the span that it lies
 * in, or `seen` if it lies in none. A moment below the floor counts as the floor.
 */
int64_t wb_spans_pause(const struct wb_store *store, int64_t seen);

/* The first moment after that ctime at which a recorded span began; INT64_MAX: none did. */
int64_t wb_spans_after(const struct wb_store *store, int64_t ctime, bool is_dir);

/*
 * Recovery found a change that was under way when its daemon died, of `when`, which gave an object that
 * ctime: it is recorded. Times much later than `when` are somebody else's.
 */
void wb_spans_extend(struct wb_store *store, int64_t when, int64_t ctime);

/* Every object of the tree was checked since `floor`: older spans need not be known any more. 0 or -errno. */
int wb_spans_raise_floor(struct wb_store *store, int64_t floor);

/* The table of a writer was missing or damaged: changes before now cannot be told from recorded ones. */
bool wb_spans_was_lost(const struct wb_store *store);

/*
 * For a store that is not open, around changes of SRC that the holder of its lock makes on its behalf: between both,
 * and after a kill up to the next opening, everything counts as recorded. The file goes with a store that is moved
 * meanwhile. 0 or -errno.
 */
int wb_spans_begin_offline(int dir_fd);
int wb_spans_end_offline(int dir_fd);

/* For a store that is not open: all objects count as checked now. 0 or -errno. */
int wb_spans_begin_anew(int dir_fd);

/*
 * Around what moves the store, which changes objects itself: meanwhile, and after a kill up to the next opening,
 * everything counts as recorded.
 */
void wb_spans_begin_moving(struct wb_store *store);
void wb_spans_end_moving(struct wb_store *store);

/* The table as it is now, into a copy of the store. 0 or -errno. */
int wb_spans_copy(const struct wb_store *store, int dir_fd);

/* The store is in another directory by now (store_follow.h): the table is written there. 0 or -errno. */
int wb_spans_follow(struct wb_store *store);

/*
 * Whether a log of an object with that ctime says that others changed it (WB_GAP_UNSEEN or EXTERNAL), or that its slot
 * was lost (WB_GAP_POWER), or that ctime is below the floor by now. 1, 0 or -errno.
 */
int wb_spans_is_marked(const struct wb_store *store, int log_fd, int64_t ctime, bool is_dir);

/* Of a store that another one has taken the place of: nothing is written any more. */
void wb_spans_abandon(struct wb_store *store);

/*
 * Waits for the next tick of that clock (milliseconds), and returns it. What others changed a moment ago may
 * have the ctime of the tick before.
 */
int64_t wb_spans_next_tick(void);

/* CLOCK_REALTIME_COARSE: no ctime that the kernel gives from now on is older. */
int64_t wb_spans_clock(void);
