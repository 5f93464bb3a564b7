/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

/*
 * Which bytes of a file are told by records, and where they lie: disjoint ranges in one sorted array, 56 bytes for
 * each. Not thread-safe.
 *
 * A map is made in two steps. First the records are gathered as they come, the newest first, and laid over each other
 * now and then, all that has come so far in one sweep: so a hundred thousand of them cost milliseconds, and memory
 * does not grow with the records but with the ranges that are left. Afterwards newer records fill what nothing tells
 * yet; these few are kept in a small array beside the large one until it is worth while to join them.
 */

#include "format/format.h"
#include <stddef.h>

/* A piece beside those of records (enum wb_extent_kind): nobody knows what was there. */
#define WB_PIECE_UNKNOWN 3

/* [offset, offset + length) of the file is bytes `within` and on of a blob, verified as a whole. */
struct wb_piece {
    uint64_t offset;
    uint64_t length;
    uint64_t within;
    uint64_t blob;        /* where it begins in the log (INLINE) or the image (IMAGE) */
    uint64_t blob_length;
    uint64_t check;       /* of the blob */
    uint32_t kind;        /* enum wb_extent_kind */
    uint32_t number;      /* of the blob: of two that are gathered, the greater one is older and wins */
};

struct wb_pieces {
    struct wb_piece *items;
    size_t count, room;
};

struct wb_extent_map {
    struct wb_pieces told;     /* sorted by offset, disjoint                 */
    struct wb_pieces news;     /* the same, and disjoint from `told`: filled */
    struct wb_pieces gathered; /* in no order: not found yet                 */
};

void wb_extent_map_init(struct wb_extent_map *map);
void wb_extent_map_deinit(struct wb_extent_map *map);

/* An older record: what it tells goes over whatever is there, once it is settled. 0 or -ENOMEM. */
int wb_extent_map_gather(struct wb_extent_map *map, const struct wb_piece *piece);
int wb_extent_map_settle(struct wb_extent_map *map);

/* A newer record: it tells only what nothing older tells. Nothing may wait to be settled. 0 or -ENOMEM. */
int wb_extent_map_fill(struct wb_extent_map *map, const struct wb_piece *piece);

/* The piece that covers `offset`, or NULL with *ret_until where the next one begins (UINT64_MAX). It is valid until
 * the map changes. */
const struct wb_piece *wb_extent_map_find(const struct wb_extent_map *map, uint64_t offset,
                                          uint64_t *ret_until);
