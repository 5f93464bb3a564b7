/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

/* A set of small numbers, a bit for each. Zero it to begin. Not thread-safe. */

#include <glib.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>

struct wb_bits {
    uint8_t *bytes;
    size_t room;
};

static inline void wb_bits_deinit(struct wb_bits *bits)
{
    g_free(bits->bytes);
    *bits = (struct wb_bits){0};
}

static inline bool wb_bits_has(const struct wb_bits *bits, uint32_t number)
{
    return number / 8 < bits->room && bits->bytes[number / 8] & 1u << number % 8;
}

/* Without memory the number is left out. */
static inline void wb_bits_set(struct wb_bits *bits, uint32_t number)
{
    if (number / 8 >= bits->room) {
        size_t room = MAX(64, 2 * ((size_t)number / 8 + 1));
        uint8_t *bytes = g_try_realloc(bits->bytes, room);

        if (!bytes)
            return;
        memset(bytes + bits->room, 0, room - bits->room);
        bits->bytes = bytes;
        bits->room = room;
    }
    bits->bytes[number / 8] |= (uint8_t)(1u << number % 8);
}
