/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

/*
 * Text in aligned columns, as it comes: the first rows fix the widths, later ones only widen
 * them, so that a long history neither waits nor fills memory.
 */

#include <stdio.h>

struct wb_table;

struct wb_column {
    const char *title;
    int right; /* numbers: aligned to the right */
};

#define WB_TABLE_COLUMNS_MAX 12

/* On a terminal, the last column is cut to its width. */
struct wb_table *wb_table_new(FILE *out, const struct wb_column *columns, unsigned count);

/* One row: `count` texts as wb_text_printable gives them (copied), perhaps with wb_color in them. */
void wb_table_add(struct wb_table *table, const char *const *cells);

/* Prints what is still held back; a table without rows prints nothing. Returns NULL. */
struct wb_table *wb_table_free(struct wb_table *table);
