/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

/* The lines of a text, as keys of a GHashTable, for line_count and line_diff. */

#include <glib.h>
#include <stddef.h>

/* A part of the text, with its newline: a last line without one differs from the same with one. */
struct wb_line {
    const char *text;
    size_t length;
};

/* Of struct wb_line, by their texts. With a seed that the author of a text cannot know. */
guint wb_line_hash(gconstpointer line);
gboolean wb_line_equal(gconstpointer a, gconstpointer b);

/* Array of elements of that size, each of which begins with a struct wb_line; the rest is zeroed. g_array_unref. */
GArray *wb_lines_split(const char *text, size_t size, guint element_size);
