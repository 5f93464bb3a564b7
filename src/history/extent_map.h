/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

/*
 * Which bytes of a file are told by records, and where they lie: disjoint ranges in a balanced tree, a
 * hundred bytes for each. Not thread-safe.
 */

#include "format/format.h"
#include <glib.h>

/* [offset, offset + length) of the file is bytes `within` and on of a blob, verified as a whole. */
struct wb_piece {
    uint64_t offset;
    uint64_t length;
    uint64_t within;
    uint64_t blob;        /* where it begins in the log (INLINE) or the image (IMAGE) */
    uint64_t blob_length;
    uint64_t check;       /* of the blob */
    uint32_t kind;        /* enum wb_extent_kind */
};

struct wb_extent_map {
    GTree *tree;
};

void wb_extent_map_init(struct wb_extent_map *map);
void wb_extent_map_deinit(struct wb_extent_map *map);

/* An older record: what it tells goes over whatever is there. */
void wb_extent_map_set(struct wb_extent_map *map, const struct wb_piece *piece);

/* A newer record: it tells only what nothing older tells. */
void wb_extent_map_fill(struct wb_extent_map *map, const struct wb_piece *piece);

/* The piece that covers `offset`, or NULL with *ret_until where the next one begins (UINT64_MAX). */
const struct wb_piece *wb_extent_map_find(const struct wb_extent_map *map, uint64_t offset,
                                          uint64_t *ret_until);
