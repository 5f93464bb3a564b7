/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Lines that only one text has cannot be common, and are counted at once. Of the others, the length of the shortest
 * script is found as in E. W. Myers, "An O(ND) Difference Algorithm and Its Variations", Algorithmica 1 (1986), section
 * 3; the script itself is not needed.
 */
#include "content/line_count.h"

#include <glib.h>
#include <stdint.h>
#include <string.h>

/* Steps of the comparison, about a tenth of a second. */
#define STEPS_MAX 20000000u

struct line {
    const char *text;
    size_t length;
};

/* FNV-1a, with a seed that the author of a text cannot know: lines that collide on purpose would take for ever. */
static guint hash_line(gconstpointer data)
{
    static guint seed;
    const struct line *line = data;
    guint hash;

    if (seed == 0)
        seed = g_random_int() | 1;
    hash = seed;
    for (size_t i = 0; i < line->length; i++)
        hash = (hash ^ (guchar)line->text[i]) * 16777619u;
    return hash ^ hash >> 15;
}

static gboolean is_same_line(gconstpointer a, gconstpointer b)
{
    const struct line *one = a, *other = b;

    return one->length == other->length && memcmp(one->text, other->text, one->length) == 0;
}

/* Each line with its end, so that a last line without one differs from the same with one. Array of struct line. */
static GArray *split(const char *text, size_t size)
{
    GArray *lines = g_array_new(FALSE, FALSE, sizeof(struct line));

    while (size > 0) {
        const char *end = memchr(text, '\n', size);
        struct line line = {text, end ? (size_t)(end - text) + 1 : size};

        g_array_append_val(lines, line);
        text += line.length;
        size -= line.length;
    }
    return lines;
}

/* Leaves out the lines that both begin with, or end with. */
static void trim(GArray *old, GArray *new)
{
    guint begin = 0, end = 0, shorter = MIN(old->len, new->len);

    while (begin < shorter &&
           is_same_line(&g_array_index(old, struct line, begin), &g_array_index(new, struct line, begin)))
        begin++;
    while (end < shorter - begin && is_same_line(&g_array_index(old, struct line, old->len - 1 - end),
                                                 &g_array_index(new, struct line, new->len - 1 - end)))
        end++;
    g_array_set_size(old, old->len - end);
    g_array_set_size(new, new->len - end);
    g_array_remove_range(old, 0, begin);
    g_array_remove_range(new, 0, begin);
}

/* The lines that `other` has as well, as numbers: equal lines have equal ones. Array of guint. */
static GArray *common(const GArray *lines, const GArray *other, GHashTable *numbers)
{
    g_autoptr(GHashTable) there = g_hash_table_new(hash_line, is_same_line);
    GArray *found = g_array_new(FALSE, FALSE, sizeof(guint));

    for (guint i = 0; i < other->len; i++)
        g_hash_table_add(there, &g_array_index(other, struct line, i));
    for (guint i = 0; i < lines->len; i++) {
        struct line *line = &g_array_index(lines, struct line, i);
        gpointer number;

        if (!g_hash_table_contains(there, line))
            continue;
        if (!g_hash_table_lookup_extended(numbers, line, NULL, &number)) {
            number = GUINT_TO_POINTER(g_hash_table_size(numbers));
            g_hash_table_insert(numbers, line, number);
        }
        guint one = GPOINTER_TO_UINT(number);
        g_array_append_val(found, one);
    }
    return found;
}

static bool is_equal(const GArray *old, int64_t x, const GArray *new, int64_t y)
{
    return g_array_index(old, guint, (guint)x) == g_array_index(new, guint, (guint)y);
}

/* The number of lines that have to be removed and added; -1: too many steps. */
static int64_t distance(const GArray *old, const GArray *new)
{
    int64_t n = old->len, m = new->len, max = n + m;
    g_autofree int64_t *ends = g_new0(int64_t, 2 * (size_t)max + 2);
    int64_t *furthest = ends + max; /* on diagonal k, at [k] */
    uint64_t steps = 0;

    for (int64_t d = 0; d <= max; d++) {
        for (int64_t k = -d; k <= d; k += 2) {
            int64_t x = k == -d || (k != d && furthest[k - 1] < furthest[k + 1]) ? furthest[k + 1]
                                                                                 : furthest[k - 1] + 1;
            int64_t y = x - k;

            while (x < n && y < m && y >= 0 && is_equal(old, x, new, y)) {
                x++;
                y++;
                steps++;
            }
            furthest[k] = x;
            if (x >= n && y >= m)
                return d;
            if (++steps > STEPS_MAX)
                return -1;
        }
    }
    return max;
}

bool wb_lines_compare(const char *old, size_t old_size, const char *new, size_t new_size, unsigned *ret_added,
                      unsigned *ret_removed)
{
    g_autoptr(GHashTable) numbers = g_hash_table_new(hash_line, is_same_line);
    g_autoptr(GArray) old_lines = NULL;
    g_autoptr(GArray) new_lines = NULL;
    g_autoptr(GArray) old_common = NULL;
    g_autoptr(GArray) new_common = NULL;
    int64_t length, kept;

    if (memchr(old, '\0', old_size) || memchr(new, '\0', new_size))
        return false;
    old_lines = split(old, old_size);
    new_lines = split(new, new_size);
    trim(old_lines, new_lines);
    old_common = common(old_lines, new_lines, numbers);
    new_common = common(new_lines, old_lines, numbers);
    length = distance(old_common, new_common);
    if (length < 0)
        return false;
    kept = ((int64_t)old_common->len + new_common->len - length) / 2;
    *ret_added = (unsigned)(new_lines->len - kept);
    *ret_removed = (unsigned)(old_lines->len - kept);
    return true;
}
