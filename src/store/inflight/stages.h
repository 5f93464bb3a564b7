/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

/*
 * Stages under way: the files whose content is being changed by somebody who has them open, where all of that
 * is to be one version (history=close).
 *
 * A stage is written down before the first change in it: which file, since when, and what attributes it had.
 * That is what the past looks like until the stage ends, by an ATTR record with WB_RECORD_STAGE; and what a
 * crash leaves is ended by recovery. The table is the file `stages`; it is small, since it holds what is open
 * and being written now.
 */

#include "store/store.h"

/* Writes it down. A slot number >= 0, or -errno. Another stage of the same object must not be under way. */
int wb_stages_add(struct wb_store *store, const struct wb_stage_entry *entry);

/*
 * Makes all slots durable. 0 or -errno.
 *
 * Whoever brings users' content, or what it is mapped by, to the disk does so between begin and end: what is growing
 * must not get there before its slot does, since no record tells of growth. Begin syncs the slots that are there;
 * until the end, a stage that begins is on the disk before its change is made. End follows a failed begin too.
 */
int wb_stages_sync(struct wb_store *store);
int wb_stages_sync_begin(struct wb_store *store);
void wb_stages_sync_end(struct wb_store *store);

/* The record that ends it is in its log: it is forgotten. */
void wb_stages_remove(struct wb_store *store, int slot);

/* The stage of `object` under way: 1, 0 where there is none, or -errno. `ret_slot` may be NULL. */
int wb_stages_find(const struct wb_store *store, struct wb_object object, struct wb_stage_entry *ret, int *ret_slot);

/* Those under way, in no order; a callback may remove the one it is called for. Stops at a nonzero result and
 * returns it. */
int wb_stages_each(struct wb_store *store, int (*callback)(int slot, const struct wb_stage_entry *entry, void *data),
                   void *data);
