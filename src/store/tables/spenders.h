/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

/*
 * How much history the changes of each user take, for user-max-size: as it was measured last (usage/spent.h), and the
 * records since. The user is the one who made the change; where that is not known, as with write-back of a
 * mapping, the owner of the file. Root is not counted. Kept in memory only: records name their actors, so it can be
 * measured at any time. Nothing is counted while there is no limit.
 */

#include "store/store.h"

struct wb_spenders *wb_spenders_new(void); /* NULL: no memory */
struct wb_spenders *wb_spenders_free(struct wb_spenders *spenders); /* returns NULL */

/* So many bytes each; 0: no limit. */
void wb_spenders_limit(struct wb_store *store, uint64_t limit);

/* The user of a change of `when`, by the actor in its record; `owner` where nobody is known. */
uint32_t wb_spenders_uid(struct wb_store *store, uint32_t actor, int64_t when, uint32_t owner);

/* The owner of what a record is about, as it was before. */
uint32_t wb_spenders_owner(const struct wb_record *record);

/* Steps of measuring: begin, set the bytes of each user's history, end. A user that was not set takes nothing. */
void wb_spenders_begin(struct wb_store *store);
void wb_spenders_set(struct wb_store *store, uint32_t uid, uint64_t bytes);
void wb_spenders_end(struct wb_store *store);

struct wb_spender {
    uint32_t uid;
    bool stuck;     /* nothing more of it may go */
    uint64_t bytes; /* at most */
};
/* False: nothing has been measured yet, or there is no limit. */
bool wb_spenders_get(struct wb_store *store, uint32_t uid, struct wb_spender *ret);
void wb_spenders_set_stuck(struct wb_store *store, uint32_t uid, bool stuck);
/* All of them, in order of uid; *ret: g_free. Their number, or -ENOMEM. */
int64_t wb_spenders_list(struct wb_store *store, struct wb_spender **ret);
