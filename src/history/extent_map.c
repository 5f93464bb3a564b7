/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "history/extent_map.h"

static int compare(const void *a, const void *b, void *data)
{
    const struct wb_piece *x = a, *y = b;

    return x->offset < y->offset ? -1 : x->offset > y->offset;
}

void wb_extent_map_init(struct wb_extent_map *map)
{
    map->tree = g_tree_new_full(compare, NULL, g_free, NULL);
}

void wb_extent_map_deinit(struct wb_extent_map *map)
{
    if (map->tree)
        g_tree_unref(map->tree);
    map->tree = NULL;
}

static uint64_t end_of(const struct wb_piece *piece)
{
    return piece->offset + piece->length;
}

/* [from, to) of the piece. */
static struct wb_piece part_of(const struct wb_piece *piece, uint64_t from, uint64_t to)
{
    struct wb_piece part = *piece;

    part.offset = from;
    part.length = to - from;
    part.within += from - piece->offset;
    return part;
}

static void insert(struct wb_extent_map *map, const struct wb_piece *piece)
{
    g_tree_insert(map->tree, g_memdup2(piece, sizeof(*piece)), NULL);
}

/* The node of the last piece that begins at or before `offset`, or NULL. */
static GTreeNode *node_before(const struct wb_extent_map *map, uint64_t offset)
{
    struct wb_piece key = {.offset = offset};
    GTreeNode *after = g_tree_upper_bound(map->tree, &key);

    return after ? g_tree_node_previous(after) : g_tree_node_last(map->tree);
}

static struct wb_piece *piece_of(GTreeNode *node)
{
    return node ? g_tree_node_key(node) : NULL;
}

const struct wb_piece *wb_extent_map_find(const struct wb_extent_map *map, uint64_t offset,
                                          uint64_t *ret_until)
{
    struct wb_piece key = {.offset = offset};
    struct wb_piece *before = piece_of(node_before(map, offset)), *after;

    if (before && end_of(before) > offset)
        return before;
    after = piece_of(g_tree_upper_bound(map->tree, &key));
    *ret_until = after ? after->offset : UINT64_MAX;
    return NULL;
}

/* Makes [from, to) free: pieces are cut at both ends, what lies inside goes. */
static void clear(struct wb_extent_map *map, uint64_t from, uint64_t to)
{
    struct wb_piece *piece = piece_of(node_before(map, from)), key = {.offset = from};
    struct wb_piece tail;
    GTreeNode *node;

    if (piece && end_of(piece) > from) {
        tail = *piece;
        if (piece->offset < from)
            piece->length = from - piece->offset;
        else
            g_tree_remove(map->tree, piece);
        if (end_of(&tail) > to) {
            tail = part_of(&tail, to, end_of(&tail));
            insert(map, &tail);
            return;
        }
    }
    while ((node = g_tree_lower_bound(map->tree, &key)) && (piece = piece_of(node))->offset < to) {
        tail = *piece;
        g_tree_remove(map->tree, piece);
        if (end_of(&tail) > to) {
            tail = part_of(&tail, to, end_of(&tail));
            insert(map, &tail);
        }
    }
}

void wb_extent_map_set(struct wb_extent_map *map, const struct wb_piece *piece)
{
    if (piece->length == 0)
        return;
    clear(map, piece->offset, end_of(piece));
    insert(map, piece);
}

void wb_extent_map_fill(struct wb_extent_map *map, const struct wb_piece *piece)
{
    uint64_t at = piece->offset, end = end_of(piece), until;

    while (at < end) {
        const struct wb_piece *there = wb_extent_map_find(map, at, &until);
        struct wb_piece part;

        if (there) {
            at = end_of(there);
            continue;
        }
        part = part_of(piece, at, MIN(until, end));
        insert(map, &part);
        at = end_of(&part);
    }
}
