/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

/*
 * The index a log carries itself: from time to time, a record with copies of the heads before it
 * (docs/format.md, INDEX). It makes looking far back cost what the changes cost, not what they overwrote.
 *
 * One is written where the log's end passes a multiple of the stride: no state to be kept, which
 * eviction or a crash could lose. Nothing depends on it: that it could not be written is no error of anybody's.
 */

#include "store/store.h"

#define WB_INDEX_STRIDE (4u << 20)

/*
 * To be called after a whole change was appended to the undo log of `object`, which ended at `before` until
 * then. The caller holds log->lock, still.
 */
void wb_log_index(struct wb_store *store, struct wb_log *log, struct wb_object object, uint64_t before);

/* One at once, wherever the log ends, under the same lock. */
void wb_log_index_now(struct wb_store *store, struct wb_log *log, struct wb_object object);
