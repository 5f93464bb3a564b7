/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "capture/ranges.h"

#include <glib.h>
#include <string.h>

/* The first range that ends at or after `at`. */
static unsigned find(const struct wb_ranges *ranges, uint64_t at)
{
    unsigned low = 0, high = ranges->count;

    while (low < high) {
        unsigned middle = low + (high - low) / 2;

        if (ranges->items[middle].to < at)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

static bool make_room(struct wb_ranges *ranges)
{
    unsigned room = ranges->room ? ranges->room * 2 : 4;
    struct wb_range *items;

    if (ranges->count < ranges->room)
        return true;
    if (ranges->count == WB_RANGES_MAX)
        return false;
    items = g_try_realloc_n(ranges->items, room, sizeof(*items));
    if (!items)
        return false;
    ranges->items = items;
    ranges->room = room;
    return true;
}

void wb_ranges_add(struct wb_ranges *ranges, uint64_t from, uint64_t to)
{
    unsigned first = find(ranges, from), last = first;

    if (from >= to)
        return;
    /* What it touches becomes one with it. */
    while (last < ranges->count && ranges->items[last].from <= to) {
        from = MIN(from, ranges->items[last].from);
        to = MAX(to, ranges->items[last].to);
        last++;
    }
    if (first == last && !make_room(ranges))
        return;
    if (last != first + 1)
        memmove(ranges->items + first + 1, ranges->items + last, (ranges->count - last) * sizeof(*ranges->items));
    ranges->items[first] = (struct wb_range){from, to};
    ranges->count = ranges->count + 1 - (last - first);
}

bool wb_ranges_gap(const struct wb_ranges *ranges, uint64_t from, uint64_t to, struct wb_range *ret)
{
    unsigned at = find(ranges, from);

    /* The range found may end just at `from`, and none begins where another ends. */
    if (at < ranges->count && ranges->items[at].to == from)
        at++;
    if (at < ranges->count && ranges->items[at].from <= from)
        from = ranges->items[at++].to;
    if (from >= to)
        return false;
    *ret = (struct wb_range){from, at < ranges->count ? MIN(to, ranges->items[at].from) : to};
    return true;
}

void wb_ranges_clear(struct wb_ranges *ranges)
{
    ranges->count = 0;
}

void wb_ranges_deinit(struct wb_ranges *ranges)
{
    g_free(ranges->items);
    *ranges = (struct wb_ranges){0};
}
