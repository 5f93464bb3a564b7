/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

/*
 * Which bytes of a file are in records, and where: disjoint ranges in one sorted array, 56 bytes for each. Not
 * thread-safe.
 *
 * A map is made in two steps. First the records are gathered, newest first, and merged from time to time, all at once
 * in one sweep: so a hundred thousand records take milliseconds, and memory grows with the remaining ranges, not with
 * the records. Afterwards newer records fill ranges that no record covers yet; these few are kept in a small array
 * beside the large one until joining them is worthwhile.
 */

#include "format/format.h"
#include <stddef.h>

/* A kind of piece besides those of records (enum wb_extent_kind): the bytes are not known. */
#define WB_PIECE_UNKNOWN 3

/* [offset, offset + length) of the file are the bytes of a blob from `within` on; the blob is verified as a whole. */
struct wb_piece {
    uint64_t offset;
    uint64_t length;
    uint64_t within;
    uint64_t blob;        /* its offset in the log (INLINE) or the image (IMAGE) */
    uint64_t blob_length;
    uint64_t check;       /* of the blob */
    uint32_t kind;        /* enum wb_extent_kind */
    uint32_t number;      /* of the blob: of two gathered pieces, the one with the greater number is older and wins */
};

struct wb_pieces {
    struct wb_piece *items;
    size_t count, room;
};

struct wb_extent_map {
    struct wb_pieces merged;     /* sorted by offset, disjoint                 */
    struct wb_pieces news;     /* the same, and disjoint from `merged`: pieces that were filled in */
    struct wb_pieces gathered; /* unordered: searches do not see them yet    */
};

void wb_extent_map_init(struct wb_extent_map *map);
void wb_extent_map_deinit(struct wb_extent_map *map);

/* Adds an older record: once the map is settled, it replaces the pieces that it overlaps. 0 or -ENOMEM. */
int wb_extent_map_gather(struct wb_extent_map *map, const struct wb_piece *piece);
int wb_extent_map_settle(struct wb_extent_map *map);

/* Adds a newer record: it only covers bytes that no older one covers. No gathered piece may be unsettled. 0 or
 * -ENOMEM. */
int wb_extent_map_fill(struct wb_extent_map *map, const struct wb_piece *piece);

/* The piece that covers `offset`, or NULL with *ret_until set to the beginning of the next one (UINT64_MAX: none).
 * Valid until the map changes. */
const struct wb_piece *wb_extent_map_find(const struct wb_extent_map *map, uint64_t offset,
                                          uint64_t *ret_until);
