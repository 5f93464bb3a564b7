/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "maintain/usage/room.h"

/* ---- classes of ages ------------------------------------------------------------------------- */

#define PART_BITS 5u
G_STATIC_ASSERT(1u << PART_BITS == WB_ROOM_PARTS);

static unsigned class_of(int64_t age)
{
    uint64_t value = age > 0 ? (uint64_t)age : 0;
    unsigned top;

    if (value < WB_ROOM_PARTS)
        return (unsigned)value;
    top = 63 - (unsigned)__builtin_clzll(value);
    return (top - PART_BITS + 1) * WB_ROOM_PARTS + (unsigned)(value >> (top - PART_BITS) & (WB_ROOM_PARTS - 1));
}

/* The least age of the class. */
static int64_t least_of(unsigned class)
{
    unsigned row = class / WB_ROOM_PARTS, part = class % WB_ROOM_PARTS;

    if (row == 0)
        return part;
    if (row >= 63 - PART_BITS + 1)
        return INT64_MAX;
    return (int64_t)((uint64_t)(WB_ROOM_PARTS + part) << (row - 1));
}

void wb_room_add(struct wb_room_ages *ages, int64_t when, uint64_t bytes)
{
    int64_t age = when <= 0 ? ages->now : ages->now - MIN(when, ages->now);

    ages->bytes[class_of(age)] += bytes;
}

uint64_t wb_room_between(const struct wb_room_ages *ages, int64_t since, int64_t until)
{
    uint64_t sum = 0;

    /* A class that holds `since` was forgotten in part; one that holds `until` goes in part. Neither counts. */
    for (unsigned class = 0; class + 1 < WB_ROOM_CLASSES; class++)
        if (least_of(class) > ages->now - until && least_of(class + 1) <= ages->now - since)
            sum += ages->bytes[class];
    return sum;
}

int64_t wb_room_choose(const struct wb_room_ages *ages, int64_t begins, int64_t latest, uint64_t wanted)
{
    int64_t least = ages->now - MIN(latest, ages->now);
    uint64_t sum = 0;

    if (latest <= begins)
        return 0;
    for (unsigned class = class_of(ages->now - begins) + 1; class-- > 0;) {
        int64_t horizon;

        /* The first class may have been pruned in part already; a later call sees how much was freed. */
        sum += ages->bytes[class];
        if (least_of(class) <= least)
            break;
        horizon = ages->now - least_of(class);
        if (sum >= wanted && horizon > begins)
            return horizon;
    }
    return latest;
}

uint64_t wb_room_bytes(const struct wb_room *room, const struct statvfs *device)
{
    double all = (double)device->f_blocks * (double)device->f_frsize;

    return room->percent ? MAX((uint64_t)(all / 100 * room->percent), 1) : room->bytes;
}
