/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

/*
 * What is known of each of many objects: a hash table that takes no more memory the more there are. Its items begin
 * with their key, a struct wb_object that is not none, and have one size.
 */

#include "format/format.h"
#include "transfer/wire/scratch.h"

#define WB_TABLE_ITEM_MAX 64

struct wb_table {
    struct wb_scratch places; /* a power of two of them; a free one is zeros */
    size_t size;              /* of an item                                  */
    uint64_t place_count, count;
    uint64_t seed;            /* whoever chooses the keys cannot choose where they are */
};

/* `dir_fd`: where it may have its file. 0 or -errno. One that is all zeros may be deinited. */
int wb_table_init(struct wb_table *table, int dir_fd, size_t size);
void wb_table_deinit(struct wb_table *table);
int wb_table_clear(struct wb_table *table);

/* A key for some bytes, which may be forgotten: no two have the same, and nobody can choose them so. */
struct wb_object wb_table_key(const struct wb_table *table, const void *data, size_t length);

/* 1 and *ret; 0: there is no item of that key; -errno. */
int wb_table_get(const struct wb_table *table, struct wb_object key, void *ret);
/* Adds it, or replaces that of its key. 0 or -errno; replacing needs no room. */
int wb_table_put(struct wb_table *table, const void *item);

/* Each item once, until `each` returns something other than 0. It may replace the one it gets, and add none. */
int wb_table_each(struct wb_table *table, int (*each)(const void *item, void *data), void *data);
