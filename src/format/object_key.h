/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

/*
 * Objects as keys of a hash table. Numbers of inodes are dense and births lie close together, so that it takes a
 * product to spread them.
 */

#include "format/format.h"

static inline unsigned wb_object_hash(const void *key)
{
    const struct wb_object *object = key;

    return (unsigned)((object->ino ^ (uint64_t)object->birth * 31) * UINT64_C(0x9e3779b97f4a7c15) >> 32);
}

static inline int wb_object_is_key(const void *a, const void *b)
{
    return wb_object_equal(*(const struct wb_object *)a, *(const struct wb_object *)b);
}
