/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

/*
 * Clones made ahead: if a file is being rewritten from one end to the other, it is cloned into its ID.image in large
 * pieces before its writes need them, and each write refers to its part of such a clone. So a rewrite costs a few
 * clones, not one for each request.
 *
 * The invariant: a record may refer to a part of a clone only if no change has touched these bytes of the file since
 * the clone was made. Therefore any code that changes content calls wb_preclone_consume first, always, for all bytes
 * that may change; each byte is referred to at most once, by its first change. The caller holds the lock of the file
 * object, from before the clone to after the change.
 *
 * All state is in memory, in a fixed number of slots of one clone each; an object that finds no free slot is cloned for
 * each change. Parts that no record refers to are freed (a hole is punched into the image) when the clone is released:
 * when a writer closes the file, when consecutive changes have ceased, when another object needs the slot, and when the
 * store is closed. After a crash they remain in the image. The image shares its blocks with the file, and where the
 * file changed, with later images.
 */

#include "store/store.h"

#define WB_PRECLONE_SLOTS 16
#define WB_PRECLONE_MAX (1ull << 30) /* bytes of a file in one clone */
#define WB_PRECLONE_TIMES 8          /* clones this many times the length of the consecutive writes so far */
#define WB_PRECLONE_UNIT 4096        /* the smallest unit for which the state of a clone is kept */

struct wb_preclone *wb_preclone_new(void);
/* Frees the parts that no record refers to. Returns NULL. */
struct wb_preclone *wb_preclone_free(struct wb_preclone *ahead);

/*
 * [from, to) of the object is about to change. With `refer`: 1 if the clone contains all of it, unchanged until now;
 * then *ret_source is its offset in the image, and the bytes count as referred to. Else 0.
 */
int wb_preclone_consume(struct wb_store *store, struct wb_object object, uint64_t from, uint64_t to, bool refer,
                        uint64_t *ret_source);

/*
 * [from, to) has to be cloned, since the existing clone does not serve. Returns the end of the range to clone at once,
 * if the object's changes are consecutive: `to` or more, at most `size`.
 */
uint64_t wb_preclone_plan(struct wb_store *store, struct wb_object object, uint64_t from, uint64_t to, uint64_t size);

/*
 * [from, to) of the file was cloned to `source` of the image, and records refer to the part below `used`. `image`: open
 * for writing; the caller keeps ownership. `block`: of the file system. Replaces an older clone.
 */
void wb_preclone_keep(struct wb_store *store, struct wb_object object, int image, uint64_t from, uint64_t to,
                      uint64_t source, uint64_t used, uint64_t block);

/* Releases the clone of an object, if there is one. */
void wb_preclone_release(struct wb_store *store, struct wb_object object);

/* To be called periodically: releases clones that no consecutive changes used since the last call. */
void wb_preclone_age(struct wb_store *store);
