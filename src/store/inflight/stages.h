/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

/*
 * Stages under way: the files whose content is being changed through open descriptors, if all of these changes become
 * one version (history=close).
 *
 * A stage is written to the table before its first change: the file, the begin, and the attributes it had. The past
 * shows that state until the stage ends, by an ATTR record with WB_RECORD_STAGE; recovery ends stages that a crash
 * left. The table is the file `stages`; it is small, since it holds only files that are open and being written now.
 */

#include "store/store.h"

/* Adds a stage. A slot number >= 0, or -errno. No other stage of the same object may be under way. */
int wb_stages_add(struct wb_store *store, const struct wb_stage_entry *entry);

/*
 * Makes all slots durable. 0 or -errno.
 *
 * Code that writes users' content, or the metadata that maps it, to the disk does so between begin and end: a growing
 * file must not get there before its slot, since no record describes growth. Begin syncs the existing slots; until the
 * end, a new stage is on the disk before its change is made. Call end after a failed begin, too.
 */
int wb_stages_sync(struct wb_store *store);
int wb_stages_sync_begin(struct wb_store *store);
void wb_stages_sync_end(struct wb_store *store);

/*
 * Removes a stage after the record that ends it is in its log. For a stage that no record ends, call the second one
 * before anything else changes: it makes removals durable. If a power cut brought such a slot back, later changes would
 * seem to have been made in that stage.
 */
void wb_stages_remove(struct wb_store *store, int slot);
int wb_stages_sync_removed(struct wb_store *store);

/* The stage of `object` under way: 1, 0 if there is none, or -errno. `ret_slot` may be NULL. */
int wb_stages_find(const struct wb_store *store, struct wb_object object, struct wb_stage_entry *ret, int *ret_slot);

/*
 * The moment from which on no state needs a GAP of the undo log of `object`. A GAP that was written in a stage stands
 * for changes that count from the end of the stage, as the stage does. `skip`: of the walk that found the GAP.
 */
int64_t wb_stages_gap_when(const struct wb_store *store, struct wb_object object, const struct wb_log_skip *skip,
                           const struct wb_record *gap);

/* Calls `callback` for those under way, in no order; it may remove the one it is called for. Stops at a nonzero result
 * and returns it. */
int wb_stages_each(struct wb_store *store, int (*callback)(int slot, const struct wb_stage_entry *entry, void *data),
                   void *data);
