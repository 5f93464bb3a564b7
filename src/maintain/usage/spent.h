/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

/*
 * Computes how much space the history of each user's changes takes (user-max-size): logs and images by the actors of
 * their records, deleted files by the users who deleted them, in blocks, as max-size counts. Also how much history of
 * one user may be pruned without any of another's: states of their own files that their own changes replaced. Of a log
 * that is all up to the first record of another user's change, or of a change to another user's file; of deleted files,
 * those that they deleted themselves. Names and attributes are kept, since names of others lead through them. Nothing
 * is locked.
 */

#include "maintain/usage/room.h"
#include <glib.h>

struct wb_spent {
    GHashTable *sums;          /* by uid */
    GHashTable *things;        /* the files that may be pruned, by object */
    struct wb_room_ages *ages; /* of the history that may be pruned */
    bool incomplete;           /* there are more deleted files than fit into memory     */
};

/*
 * `uid`: whose history is to go; 0: only the sums are wanted. `now`: what ages are counted from. wb_spent_deinit in any
 * case. 0; -ECANCELED; or -errno.
 */
int wb_spent_gather(struct wb_spent *ret, struct wb_store *store, uint32_t uid, int64_t now,
                    bool (*stop)(void *data), void *data);
void wb_spent_deinit(struct wb_spent *spent);

uint64_t wb_spent_sum(const struct wb_spent *spent, uint32_t uid);
/* For each user: what their history takes. */
void wb_spent_each(const struct wb_spent *spent, void (*each)(void *data, uint32_t uid, uint64_t bytes), void *data);

/* For wb_prune_options: the moment before which the logs of an object, and the deleted file itself, may go. 0: none. */
int64_t wb_spent_limit(void *spent, struct wb_object object);
