/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Lines that only one text has cannot be common, and are counted at once. Of the others, the length of the shortest
 * script is found as in E. W. Myers, "An O(ND) Difference Algorithm and Its Variations", Algorithmica 1 (1986), section
 * 3; the script itself is not needed.
 */
#include "content/line_count.h"

#include "content/lines.h"
#include <glib.h>
#include <stdint.h>
#include <string.h>

/* Steps of the comparison, about a tenth of a second. */
#define STEPS_MAX 20000000u

/* Leaves out the lines that both begin with, or end with. */
static void trim(GArray *old, GArray *new)
{
    guint begin = 0, end = 0, shorter = MIN(old->len, new->len);

    while (begin < shorter &&
           wb_line_equal(&g_array_index(old, struct wb_line, begin), &g_array_index(new, struct wb_line, begin)))
        begin++;
    while (end < shorter - begin && wb_line_equal(&g_array_index(old, struct wb_line, old->len - 1 - end),
                                                 &g_array_index(new, struct wb_line, new->len - 1 - end)))
        end++;
    g_array_set_size(old, old->len - end);
    g_array_set_size(new, new->len - end);
    g_array_remove_range(old, 0, begin);
    g_array_remove_range(new, 0, begin);
}

/* The lines that `other` has as well, as numbers: equal lines have equal ones. Array of guint. */
static GArray *common(const GArray *lines, const GArray *other, GHashTable *numbers)
{
    g_autoptr(GHashTable) there = g_hash_table_new(wb_line_hash, wb_line_equal);
    GArray *found = g_array_new(FALSE, FALSE, sizeof(guint));

    for (guint i = 0; i < other->len; i++)
        g_hash_table_add(there, &g_array_index(other, struct wb_line, i));
    for (guint i = 0; i < lines->len; i++) {
        struct wb_line *line = &g_array_index(lines, struct wb_line, i);
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
    g_autoptr(GHashTable) numbers = g_hash_table_new(wb_line_hash, wb_line_equal);
    g_autoptr(GArray) old_lines = NULL;
    g_autoptr(GArray) new_lines = NULL;
    g_autoptr(GArray) old_common = NULL;
    g_autoptr(GArray) new_common = NULL;
    int64_t length, kept;

    if (memchr(old, '\0', old_size) || memchr(new, '\0', new_size))
        return false;
    old_lines = wb_lines_split(old, old_size, sizeof(struct wb_line));
    new_lines = wb_lines_split(new, new_size, sizeof(struct wb_line));
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
