/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

/*
 * Which bytes of a file were kept already: ranges in order, none touching another. Only so many are remembered
 * (what is forgotten is kept once more, which costs room and nothing else).
 */

#include <stdbool.h>
#include <stdint.h>

#define WB_RANGES_MAX 4096

struct wb_range {
    uint64_t from, to;
};

struct wb_ranges {
    struct wb_range *items;
    unsigned count, room;
};

/* Adds [from, to), or nothing where there is no room for one more. */
void wb_ranges_add(struct wb_ranges *ranges, uint64_t from, uint64_t to);

/* The first piece of [from, to) that is in no range; false: there is none. */
bool wb_ranges_gap(const struct wb_ranges *ranges, uint64_t from, uint64_t to, struct wb_range *ret);

void wb_ranges_clear(struct wb_ranges *ranges);
void wb_ranges_deinit(struct wb_ranges *ranges);
