/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

/*
 * Content of deleted files that was lost in a power cut.
 *
 * A file enters the graveyard by a rename, which is metadata and soon on the disk; content that was written shortly
 * before may not be. No process can sync a file that has no name any more. So the store knows up to when all content
 * was on stable storage, and after a power cut it does not trust the content of a file that was buried and written
 * later: its log gets a GAP (wb_capture_lost_content), and reads before that are refused. Only on file systems with a
 * journal (wb_store.ordered).
 */

#include "store/store.h"

/*
 * To be called after wb_inflight_open: reads the tail of `inflight` that the last writer left, and whether the power
 * failed since. 0 or -errno.
 */
int wb_lost_content_open(struct wb_store *store);

/* Reports that all content of SRC written before `until` (by wb_ctime_clock) is on stable storage. */
void wb_lost_content_synced(struct wb_store *store, int64_t until);

/* Reports that all deleted files were examined since `floor`. */
void wb_lost_content_forget(struct wb_store *store, int64_t floor);

/*
 * Whether the deleted file at `fd`, whose undo log is at `log_fd` (negative: it has none), may have lost content that
 * no GAP covers. 1, with the moment up to which it was on stable storage; 0; or -errno.
 */
int wb_lost_content_find(const struct wb_store *store, int fd, int log_fd, int64_t *ret_since);
