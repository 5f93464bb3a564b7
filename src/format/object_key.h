/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

/*
 * Objects as keys of hash tables and in sorted order.
 */

#include "format/format.h"

/* Inode numbers are dense and births lie close together, so only a product spreads them. */
static inline unsigned wb_object_hash(const void *key)
{
    const struct wb_object *object = key;

    return (unsigned)((object->ino ^ (uint64_t)object->birth * 31) * UINT64_C(0x9e3779b97f4a7c15) >> 32);
}

static inline int wb_object_is_key(const void *a, const void *b)
{
    return wb_object_equal(*(const struct wb_object *)a, *(const struct wb_object *)b);
}

/* By number, then by birth: also the order of a bundle's index (docs/format.md). */
static inline int wb_object_compare(struct wb_object a, struct wb_object b)
{
    if (a.ino != b.ino)
        return a.ino < b.ino ? -1 : 1;
    return a.birth < b.birth ? -1 : a.birth > b.birth;
}
