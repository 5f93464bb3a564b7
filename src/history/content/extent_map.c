/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "history/content/extent_map.h"

#include <errno.h>
#include <glib.h>
#include <stdbool.h>
#include <string.h>

/* At least this many pieces are gathered before they are merged: 7 MiB. */
#define GATHERED_MIN (128u * 1024)
/* At most this many pieces are inserted, each moving those behind it, before they are joined with the rest. */
#define NEWS_MAX 512

void wb_extent_map_init(struct wb_extent_map *map)
{
    *map = (struct wb_extent_map){0};
}

static void pieces_free(struct wb_pieces *pieces)
{
    g_free(pieces->items);
    *pieces = (struct wb_pieces){0};
}

void wb_extent_map_deinit(struct wb_extent_map *map)
{
    pieces_free(&map->merged);
    pieces_free(&map->news);
    pieces_free(&map->gathered);
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

/* Reserves space for `more`: 0 or -ENOMEM. */
static int pieces_reserve(struct wb_pieces *pieces, size_t more)
{
    size_t room = MAX(pieces->count + more, MAX(64, pieces->room + pieces->room / 2));
    struct wb_piece *items;

    if (pieces->room - pieces->count >= more)
        return 0;
    items = g_try_renew(struct wb_piece, pieces->items, room);
    if (!items)
        return -ENOMEM;
    pieces->items = items;
    pieces->room = room;
    return 0;
}

/* ---- search ---------------------------------------------------------------------------------- */

/* The number of pieces that begin at or before `offset`. */
static size_t count_to(const struct wb_pieces *pieces, uint64_t offset)
{
    size_t low = 0, high = pieces->count;

    while (low < high) {
        size_t middle = low + (high - low) / 2;

        if (pieces->items[middle].offset <= offset)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

static const struct wb_piece *find_in(const struct wb_pieces *pieces, uint64_t offset, uint64_t *until)
{
    size_t n = count_to(pieces, offset);

    if (n > 0 && end_of(&pieces->items[n - 1]) > offset)
        return &pieces->items[n - 1];
    if (n < pieces->count)
        *until = MIN(*until, pieces->items[n].offset);
    return NULL;
}

const struct wb_piece *wb_extent_map_find(const struct wb_extent_map *map, uint64_t offset,
                                          uint64_t *ret_until)
{
    const struct wb_piece *piece;

    *ret_until = UINT64_MAX;
    piece = find_in(&map->merged, offset, ret_until);
    return piece ? piece : find_in(&map->news, offset, ret_until);
}

/* ---- gathering ------------------------------------------------------------------------------- */

/* The fields of a piece that the sweep needs, stored densely: the pieces themselves are in order of time. */
struct begin {
    uint64_t offset;
    uint64_t end;
    uint32_t number;
    uint32_t index; /* of the piece */
};

#define DIGIT 11
#define DIGITS 6 /* of 64 bits */
#define VALUES (1u << DIGIT)

static unsigned digit_of(const struct begin *begin, unsigned digit)
{
    return begin->offset >> digit * DIGIT & (VALUES - 1);
}

/*
 * Sorts by offset, digit by digit, from one array to the other and back; returns the one that holds the result. Offsets
 * of blocks differ in two or three digits only. Sorting by comparison took half of the time of opening a file.
 */
static struct begin *sort_begins(struct begin *from, struct begin *to, size_t count, uint32_t *places)
{
    for (unsigned digit = 0; digit < DIGITS; digit++) {
        uint32_t place = 0, n;

        memset(places, 0, VALUES * sizeof(*places));
        for (size_t i = 0; i < count; i++)
            places[digit_of(&from[i], digit)]++;
        if (places[digit_of(&from[0], digit)] == count)
            continue;
        for (unsigned value = 0; value < VALUES; value++, place += n) {
            n = places[value];
            places[value] = place;
        }
        for (size_t i = 0; i < count; i++)
            to[places[digit_of(&from[i], digit)]++] = from[i];
        struct begin *sorted = to;
        to = from;
        from = sorted;
    }
    return from;
}

/* A sweep over all pieces from left to right; of the pieces that cover the current place, the oldest counts. */
struct sweep {
    const struct wb_piece *pieces;
    const struct begin *begins; /* by offset */
    uint32_t *heap; /* of begins passed, the oldest on top; others that have ended may be below it */
    size_t met;
};

static bool is_older(const struct sweep *sweep, uint32_t a, uint32_t b)
{
    return sweep->begins[a].number > sweep->begins[b].number;
}

static void heap_push(struct sweep *sweep, uint32_t begin)
{
    size_t at = sweep->met++;

    for (; at > 0 && is_older(sweep, begin, sweep->heap[(at - 1) / 2]); at = (at - 1) / 2)
        sweep->heap[at] = sweep->heap[(at - 1) / 2];
    sweep->heap[at] = begin;
}

static void heap_pop(struct sweep *sweep)
{
    uint32_t last = sweep->heap[--sweep->met];
    size_t at = 0, child;

    while ((child = 2 * at + 1) < sweep->met) {
        if (child + 1 < sweep->met && is_older(sweep, sweep->heap[child + 1], sweep->heap[child]))
            child++;
        if (!is_older(sweep, sweep->heap[child], last))
            break;
        sweep->heap[at] = sweep->heap[child];
        at = child;
    }
    sweep->heap[at] = last;
}

/* Appends [from, to) of a piece, or extends the last one if it continues that. */
static int emit(struct wb_pieces *pieces, const struct wb_piece *piece, uint64_t from, uint64_t to)
{
    struct wb_piece part = part_of(piece, from, to);
    struct wb_piece *last = pieces->count > 0 ? &pieces->items[pieces->count - 1] : NULL;

    if (last && last->number == part.number && last->kind == part.kind && last->blob == part.blob &&
        end_of(last) == from && last->within + last->length == part.within) {
        last->length += part.length;
        return 0;
    }
    if (pieces_reserve(pieces, 1) < 0)
        return -ENOMEM;
    pieces->items[pieces->count++] = part;
    return 0;
}

static int run_sweep(struct sweep *sweep, uint32_t count, struct wb_pieces *ret)
{
    uint64_t at = 0, until;
    uint32_t next = 0;

    while (next < count || sweep->met > 0) {
        const struct begin *top;

        if (sweep->met == 0)
            at = sweep->begins[next].offset;
        while (next < count && sweep->begins[next].offset <= at)
            heap_push(sweep, next++);
        top = &sweep->begins[sweep->heap[0]];
        if (top->end <= at) {
            heap_pop(sweep);
            continue;
        }
        until = next < count ? MIN(top->end, sweep->begins[next].offset) : top->end;
        if (emit(ret, &sweep->pieces[top->index], at, until) < 0)
            return -ENOMEM;
        at = until;
    }
    return 0;
}

/* Merges all pieces of `from`, which is not empty. */
static int resolve(const struct wb_pieces *from, struct wb_pieces *ret)
{
    uint32_t count = (uint32_t)from->count;
    g_autofree struct begin *begins = g_try_new(struct begin, count);
    g_autofree struct begin *other = g_try_new(struct begin, count);
    g_autofree uint32_t *heap = g_try_new(uint32_t, MAX(count, VALUES));
    struct sweep sweep = {.pieces = from->items, .heap = heap};

    if (!begins || !other || !heap || pieces_reserve(ret, count) < 0)
        return -ENOMEM;
    for (uint32_t i = 0; i < count; i++) {
        const struct wb_piece *piece = &from->items[i];

        begins[i] = (struct begin){piece->offset, end_of(piece), piece->number, i};
    }
    sweep.begins = sort_begins(begins, other, count, heap); /* the heap is not in use yet */
    return run_sweep(&sweep, count, ret);
}

int wb_extent_map_settle(struct wb_extent_map *map)
{
    struct wb_pieces all = map->gathered, merged = {0};
    size_t known = map->merged.count + map->news.count;
    int r;

    if (all.count + map->news.count == 0)
        return 0;
    if (all.count + known >= UINT32_MAX || pieces_reserve(&all, known) < 0)
        return -ENOMEM;
    map->gathered = all; /* it may have moved in memory */
    if (map->merged.count > 0)
        memcpy(all.items + all.count, map->merged.items, map->merged.count * sizeof(*all.items));
    all.count += map->merged.count;
    if (map->news.count > 0)
        memcpy(all.items + all.count, map->news.items, map->news.count * sizeof(*all.items));
    all.count += map->news.count;
    r = resolve(&all, &merged);
    if (r < 0) {
        pieces_free(&merged);
        return r;
    }
    pieces_free(&map->merged);
    pieces_free(&map->news);
    pieces_free(&map->gathered);
    map->merged = merged;
    return 0;
}

int wb_extent_map_gather(struct wb_extent_map *map, const struct wb_piece *piece)
{
    int r = 0;

    if (piece->length == 0)
        return 0;
    /* Gathers as many as there are already: then each piece is moved only a few times. */
    if (map->gathered.count >= MAX(GATHERED_MIN, map->merged.count))
        r = wb_extent_map_settle(map);
    if (r == 0)
        r = pieces_reserve(&map->gathered, 1);
    if (r == 0)
        map->gathered.items[map->gathered.count++] = *piece;
    return r;
}

/* ---- filling --------------------------------------------------------------------------------- */

static int insert_news(struct wb_extent_map *map, const struct wb_piece *piece)
{
    struct wb_pieces *news = &map->news;
    size_t at;
    int r = news->count >= NEWS_MAX ? wb_extent_map_settle(map) : 0;

    if (r == 0)
        r = pieces_reserve(news, 1);
    if (r < 0)
        return r;
    at = count_to(news, piece->offset);
    memmove(news->items + at + 1, news->items + at, (news->count - at) * sizeof(*news->items));
    news->items[at] = *piece;
    news->count++;
    return 0;
}

int wb_extent_map_fill(struct wb_extent_map *map, const struct wb_piece *piece)
{
    uint64_t at = piece->offset, end = end_of(piece), until;
    int r = 0;

    while (r == 0 && at < end) {
        const struct wb_piece *there = wb_extent_map_find(map, at, &until);
        struct wb_piece part;

        if (there) {
            at = end_of(there);
            continue;
        }
        part = part_of(piece, at, MIN(until, end));
        r = insert_news(map, &part);
        at = end_of(&part);
    }
    return r;
}
