/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

/*
 * The timeline: all changes of the store in order of `when`, for lists over many objects. Every
 * entry says in which log the record of a change is; it holds no name and no content.
 *
 * It is derived from the logs, and nothing but lists needs it: what goes wrong with it is noted and mended by
 * building it anew. So a change does not wait for it. Of a change, one thing only is done at once: the first time a
 * log is appended to after a pass, the log's identity goes to the file `pending`. A pass, in the background or before
 * a list is shown, reads what these logs have got since, and appends it in order. After a crash the
 * pending logs are read by the next pass.
 *
 * All functions are thread-safe.
 */

#include "store/store.h"

/*
 * A record of this change has just been appended to `log`, whose lock is held. Never fails: what cannot
 * be noted makes the timeline to be built anew after a crash.
 */
void wb_timeline_note(struct wb_store *store, struct wb_log *log, struct wb_object object,
                      enum wb_object_file file);

/* The log is going to be replaced or removed: entries that lead to it are looked over by the next pass. */
void wb_timeline_drop(struct wb_store *store, struct wb_object object, enum wb_object_file file);

/*
 * Brings the timeline up to all changes that are over. Builds it anew where there is none, or it is not to be
 * trusted, which reads all logs once, in bounded memory; -ECANCELED where wb_timeline_stop came.
 * With a store that is not writable, what is missing is gathered in a temporary file. 0 or -errno.
 */
int wb_timeline_pass(struct wb_store *store);

/* What was forgotten by age is in it still: where that is a lot, and the most of it, the next pass makes it anew. */
void wb_timeline_shorten(struct wb_store *store);

/* Passes under way end soon, those to come at once; until the store is closed. */
void wb_timeline_stop(struct wb_store *store);

/* Whether it is being built anew, or has to be: then *ret_permille tells how far that is. */
bool wb_timeline_is_building(struct wb_store *store, unsigned *ret_permille);

/* ---- looking ---------------------------------------------------------------------------------- */

/* The timeline at a moment; it stays as it is. */
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

/* How many entries have a lower `when`. 0 or -errno. */
int wb_times_find(const struct wb_times *times, int64_t when, uint64_t *ret);

/* Entries [index, index + count), all of them there; a damaged one has `when` 0. 0 or -errno. */
int wb_times_read(const struct wb_times *times, uint64_t index, struct wb_times_entry *entries, size_t count);

/* The last move of a directory at or before `until`, as an entry of its PLACE record. 0, WB_ABSENT or -errno. */
int wb_times_move(const struct wb_times *times, struct wb_object dir, int64_t until, struct wb_times_entry *ret);
