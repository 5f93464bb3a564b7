/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

/*
 * Content of deleted files that a power cut took.
 *
 * The graveyard gets a file by a rename, which is metadata and soon on the disk; the content that was written
 * shortly before may not be. Nobody can sync a file that has no name any more. So it is known up to when all content
 * was on stable storage, and after a power cut a file that was buried and written later is not taken for what it was:
 * its log gets a GAP (wb_capture_lost_content), and it is refused until then. On file systems with a journal
 * (wb_store.ordered) only.
 */

#include "store/store.h"

/*
 * After wb_inflight_open: what the last writer left in the tail of `inflight`, and whether the power failed since.
 * 0 or -errno.
 */
int wb_lost_content_open(struct wb_store *store);

/* All content of SRC that was written before `until` (by wb_spans_clock) is on stable storage. */
void wb_lost_content_synced(struct wb_store *store, int64_t until);

/* All deleted files were looked at since `floor`. */
void wb_lost_content_forget(struct wb_store *store, int64_t floor);

/*
 * Whether the deleted file at `fd`, whose undo log is at `log_fd` (negative: it has none), may have lost content that
 * no GAP stands for. 1, with the moment up to which it was on stable storage; 0; or -errno.
 */
int wb_lost_content_find(const struct wb_store *store, int fd, int log_fd, int64_t *ret_since);
