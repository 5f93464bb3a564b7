/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "content/lines.h"

#include <string.h>

/* FNV-1a. Lines that collide on purpose would take for ever without a seed. */
guint wb_line_hash(gconstpointer data)
{
    static gsize seed;
    const struct wb_line *line = data;
    guint hash;

    if (g_once_init_enter(&seed))
        g_once_init_leave(&seed, g_random_int() | 1);
    hash = (guint)seed;
    for (size_t i = 0; i < line->length; i++)
        hash = (hash ^ (guchar)line->text[i]) * 16777619u;
    return hash ^ hash >> 15;
}

gboolean wb_line_equal(gconstpointer a, gconstpointer b)
{
    const struct wb_line *one = a, *other = b;

    return one->length == other->length && memcmp(one->text, other->text, one->length) == 0;
}

GArray *wb_lines_split(const char *text, size_t size, guint element_size)
{
    GArray *lines = g_array_new(FALSE, TRUE, element_size);

    while (size > 0) {
        const char *end = memchr(text, '\n', size);
        struct wb_line line = {text, end ? (size_t)(end - text) + 1 : size};

        g_array_set_size(lines, lines->len + 1);
        memcpy(lines->data + (size_t)(lines->len - 1) * element_size, &line, sizeof(line));
        text += line.length;
        size -= line.length;
    }
    return lines;
}
