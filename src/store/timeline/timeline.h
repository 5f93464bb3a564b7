/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

/*
 * The timeline: all changes of the store in order of `when`, for lists over many objects. Every entry gives the log and
 * the offset of the record of a change; it contains no name and no content.
 *
 * It is derived from the logs, and only lists need it: if it is damaged or incomplete, it is rebuilt. So a change does
 * not wait for it. A change does only one thing at once: when a log is appended to for the first time after a pass, the
 * log's identity is written to the file `pending`. A pass, in the background or before a list is shown, reads the new
 * records of these logs, and appends them in order. After a crash the next pass reads the pending logs.
 *
 * All functions are thread-safe.
 */

#include "store/store.h"

/*
 * A record of this change has just been appended to `log`, whose lock is held. Never fails: if it cannot be noted, the
 * timeline is rebuilt after a crash.
 */
void wb_timeline_note(struct wb_store *store, struct wb_log *log, struct wb_object object,
                      enum wb_object_file file);

/* The log is about to be replaced or removed: the next pass checks the entries that point to it. */
void wb_timeline_drop(struct wb_store *store, struct wb_object object, enum wb_object_file file);

/*
 * Adds all changes that have ended. Rebuilds the timeline if it is missing or invalid, which reads all logs once, in
 * bounded memory; -ECANCELED after wb_timeline_stop. If the store is not writable, missing entries are collected in a
 * temporary file. 0 or -errno.
 */
int wb_timeline_pass(struct wb_store *store);

/* The timeline still has the entries of pruned history: if these are many, and most of it, the next pass rebuilds
 * it. */
void wb_timeline_shorten(struct wb_store *store);

/* Passes under way end soon, and later ones at once, until the store is closed. */
void wb_timeline_stop(struct wb_store *store);

/* Whether it is being rebuilt, or has to be: then *ret_permille is the progress. */
bool wb_timeline_is_building(struct wb_store *store, unsigned *ret_permille);

/* While it has to be rebuilt: -errno of the last attempt, which is repeated; 0: no attempt has failed. */
int wb_timeline_failure(struct wb_store *store);

/* ---- queries ---------------------------------------------------------------------------------- */

/* The timeline at one moment; it does not change. */
struct wb_times {
    int fd;
    uint64_t count;
    int moves_fd;
    uint64_t moves_count;
};
#define WB_TIMES_INIT {.fd = -1, .moves_fd = -1}

/* 0, -EAGAIN while it is being built, or -errno. */
int wb_times_open(struct wb_times *times, struct wb_store *store);
void wb_times_close(struct wb_times *times);

/* The number of entries with a lower `when`. 0 or -errno. */
int wb_times_find(const struct wb_times *times, int64_t when, uint64_t *ret);

/* Reads entries [index, index + count), all of which must exist; a damaged one has `when` 0. 0 or -errno. */
int wb_times_read(const struct wb_times *times, uint64_t index, struct wb_times_entry *entries, size_t count);

/* The last move of a directory at or before `until`, as an entry of its PLACE record. 0, WB_ABSENT or -errno. */
int wb_times_move(const struct wb_times *times, struct wb_object dir, int64_t until, struct wb_times_entry *ret);
