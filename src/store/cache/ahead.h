/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

/*
 * Clones made ahead: a file that is being rewritten from one end to the other is cloned into its ID.image in
 * large pieces before its writes ask for them, and each write refers to its part of such a clone. So a
 * rewrite costs a few clones, not one for each request.
 *
 * What must hold: a part of a clone may be referred to only while no change has touched these bytes of the file
 * since the clone was made. Therefore whoever changes content calls wb_ahead_touch first, always, for
 * all that may change; each byte is referred to once at most, by the first change of it. Whoever calls holds the lock
 * of the file object, from before the clone to after the change.
 *
 * It is all in memory, a fixed number of slots, one clone each: whoever finds no slot clones for himself. What
 * nothing refers to is given back (a hole is punched into the image) when the clone is let go of: when the file
 * is closed by one who wrote, when changes in a row have ceased, when its place is wanted, and when the
 * store is closed. A crash before leaves it in the image. It shares its blocks with the file, and where the file
 * changed, with later images.
 */

#include "store/store.h"

#define WB_AHEAD_SLOTS 16
#define WB_AHEAD_MAX (1ull << 30)  /* bytes of a file in one clone */
#define WB_AHEAD_TIMES 8           /* as much again as was written in a row, so many times */
#define WB_AHEAD_UNIT 4096         /* what is known of a clone is known in units of at least this */

struct wb_ahead *wb_ahead_new(void);
/* Gives back what nothing refers to. Returns NULL. */
struct wb_ahead *wb_ahead_free(struct wb_ahead *ahead);

/*
 * [from, to) of the object is about to change. With `refer`: 1 where all of it is in the clone, untouched until now;
 * then *ret_source is where in the image, and it is taken for referred to. Else 0.
 */
int wb_ahead_touch(struct wb_store *store, struct wb_object object, uint64_t from, uint64_t to, bool refer,
                   uint64_t *ret_source);

/*
 * [from, to) is to be cloned since the clone there is does not serve. Up to where to clone at once, if the object's
 * changes come in a row: `to` or more, at most `size`.
 */
uint64_t wb_ahead_plan(struct wb_store *store, struct wb_object object, uint64_t from, uint64_t to, uint64_t size);

/*
 * [from, to) of the file was cloned to `source` of the image, and the part of it below `used` is referred to.
 * `image`: open for writing, not taken over. `block`: of the file system. Takes the place of an older clone.
 */
void wb_ahead_keep(struct wb_store *store, struct wb_object object, int image, uint64_t from, uint64_t to,
                   uint64_t source, uint64_t used, uint64_t block);

/* Lets go of the clone of an object, if there is one. */
void wb_ahead_release(struct wb_store *store, struct wb_object object);

/* To be called now and then: clones that no changes in a row used since the last call are let go of. */
void wb_ahead_age(struct wb_store *store);
