/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

/*
 * Recorded spans: the periods in which all changes of SRC went through a process that records them.
 *
 * Every change of an object updates its ctime, which no program can set. So an object whose ctime lies in no recorded
 * span was changed by another process: past the mount, with history=none, or by a backup that was restored. Its older
 * states cannot be derived from its records and its present state (capture/unseen.h).
 *
 * A span grows while changes are made; after a short pause the next change begins another. Changes by other processes
 * within a span are not detected. The number of spans is bounded: if there are too many, those with the smallest gaps
 * between them are joined, so the union only ever grows, and no recorded change counts as a foreign one. The floor is a
 * moment up to which every object of the tree was checked.
 */

#include "store/store.h"

/*
 * After a power cut, regular files are treated differently from directories: slots of `stages` may have been lost
 * (lost_slots.h), so a file with a ctime in that period counts as changed without a record. `is_dir` distinguishes
 * them.
 */

/*
 * For a writer: after wb_inflight_open and before wb_inflight_mark_open, so that changes which others made until now
 * are known as theirs, wherever the opening ends, also by a power cut. 0 or -errno.
 */
int wb_spans_open(struct wb_store *store);
/*
 * For a writer, after wb_inflight_mark_open: a span begins. With WB_STORE_IN_SPANS each change is made between
 * wb_spans_enter and wb_spans_leave from now on; else from wb_spans_end_opening on: until then, and after a kill up to
 * the next opening, everything counts as recorded.
 */
void wb_spans_begin(struct wb_store *store);
void wb_spans_end_opening(struct wb_store *store);
/* Any process may change SRC until it is mounted over: waits for a later tick, which the present span does not contain.
 * The next change begins another, however soon. */
void wb_spans_begin_fresh(struct wb_store *store);
/* For a writer: closes the span under way and makes everything durable. */
struct wb_spans *wb_spans_free(struct wb_store *store);

/*
 * Encloses any code that may change the ctime of an object in SRC; nests, any number of threads. About 60 ns. Does
 * nothing for a store that is open for reading only.
 */
void wb_spans_enter(struct wb_store *store);
void wb_spans_leave(struct wb_store *store);
/*
 * Between those two, after a change was made and before its slot in `inflight` is freed: the change counts as recorded
 * wherever the process is killed, since recovery looks at a change that has a slot. Outside of them (the end of a stage
 * changes no object) it does nothing: the time since the last change may have changes of others.
 */
void wb_spans_reach(struct wb_store *store);

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
 * Reports that all records before `until` (by wb_ctime_clock) are on stable storage. With the store on another disk, an
 * object with a later ctime after a power cut counts as changed by another process: its records may be lost.
 */
void wb_spans_synced(struct wb_store *store, int64_t until);
/* Before a sync of all records: writes the table. Returns `until` for the call above, or 0. */
int64_t wb_spans_begin_sync(struct wb_store *store);

/* Whether the last change of an object with that ctime was recorded. Lock-free if it was. */
bool wb_spans_has(const struct wb_store *store, int64_t ctime, bool is_dir);

/* Whether its records may have been lost in a power cut. */
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
 * Recovery found a change of `when` that was under way when its daemon died, and that gave an object that ctime: counts
 * this ctime as recorded, and none before it. Times much later than `when` belong to other processes.
 */
void wb_spans_extend(struct wb_store *store, int64_t when, int64_t ctime);

/* Every object of the tree was checked since `floor`: forgets older spans. 0 or -errno. */
int wb_spans_raise_floor(struct wb_store *store, int64_t floor);

/* Whether a writer found the table missing or damaged: then changes before now cannot be distinguished from recorded
 * ones. */
bool wb_spans_was_lost(const struct wb_store *store);

/*
 * For a store that is not open, around changes of SRC that the holder of its lock makes on its behalf: between both
 * calls, and after a kill up to the next opening, everything counts as recorded. 0 or -errno.
 */
int wb_spans_begin_offline(int dir_fd);
int wb_spans_end_offline(int dir_fd);

/* For a store that is not open: all objects count as checked now. 0 or -errno. */
int wb_spans_begin_anew(int dir_fd);

/*
 * Encloses the parts of the move of a store that change objects, but do not copy it: meanwhile, and after a kill up to
 * the next opening, everything counts as recorded.
 */
void wb_spans_begin_moving(struct wb_store *store);
void wb_spans_end_moving(struct wb_store *store);

/* Writes the present table into a copy of the store. 0 or -errno. */
int wb_spans_copy(const struct wb_store *store, int dir_fd);

/* The store is in another directory now (store_follow.h): writes the table there. 0 or -errno. */
int wb_spans_follow(struct wb_store *store);

/*
 * Whether a log of an object with that ctime says that another process changed it (WB_GAP_UNSEEN or EXTERNAL), or that
 * its slot was lost (WB_GAP_POWER), or that ctime is below the present floor. 1, 0 or -errno.
 */
int wb_spans_is_marked(const struct wb_store *store, int log_fd, int64_t ctime, bool is_dir);

/* For a store that another one has replaced: stops all writes. */
void wb_spans_abandon(struct wb_store *store);
