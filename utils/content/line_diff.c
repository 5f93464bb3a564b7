/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * The shortest script as in E. W. Myers, "An O(ND) Difference Algorithm and Its Variations", Algorithmica 1 (1986),
 * section 4: the ends of all paths are kept, so the memory grows with the square of the difference, which is limited.
 * Lines that both texts begin or end with, and lines that only one of them has, are taken out first, as in
 * line_count.c.
 */
#include "content/line_diff.h"

#include "content/lines.h"
#include <stdint.h>
#include <string.h>

/* Lines that have to be removed and added: 16 MiB of ends, and as many steps at most. */
#define DISTANCE_MAX 2000

struct line {
    struct wb_line line;
    guint number; /* equal lines have equal ones */
    bool alone;   /* it is not common            */
};

static struct line *line_of(const GArray *lines, gint64 at)
{
    return &g_array_index(lines, struct line, (guint)at);
}

static void add_numbers(GArray *lines, GHashTable *numbers)
{
    for (guint i = 0; i < lines->len; i++) {
        struct line *line = line_of(lines, i);
        struct line *known = g_hash_table_lookup(numbers, line);

        if (!known) {
            line->number = g_hash_table_size(numbers);
            g_hash_table_add(numbers, line);
        } else {
            line->number = known->number;
        }
    }
}

/* The indices, from `begin` to `end`, of lines that the other text has between its own; the others are `alone`. */
static GArray *find_shared(const GArray *lines, guint begin, guint end, const GArray *other, guint other_begin,
                           guint other_end, guint count)
{
    g_autofree guint8 *there = g_new0(guint8, (gsize)count + 1);
    GArray *shared = g_array_new(FALSE, FALSE, sizeof(guint));

    for (guint i = other_begin; i < other_end; i++)
        there[line_of(other, i)->number] = 1;
    for (guint i = begin; i < end; i++) {
        line_of(lines, i)->alone = !there[line_of(lines, i)->number];
        if (!line_of(lines, i)->alone)
            g_array_append_val(shared, i);
    }
    return shared;
}

/* Of the shared lines: both sides, and the ends of the paths of each length. */
struct search {
    const GArray *lines[2], *shared[2];
    GPtrArray *ends; /* of length d: gint32 for the diagonals -d, -d + 2, ..., d */
};

static bool is_equal(const struct search *search, gint64 x, gint64 y)
{
    guint old = g_array_index(search->shared[0], guint, (guint)x);
    guint new = g_array_index(search->shared[1], guint, (guint)y);

    return line_of(search->lines[0], old)->number == line_of(search->lines[1], new)->number;
}

/* The furthest end on diagonal k of the paths of length d, before lines that are equal. */
static gint64 begin_of(const gint32 *former, gint64 d, gint64 k)
{
    const gint32 *left = d > 0 && k > -d ? &former[(k + d) / 2 - 1] : NULL;
    const gint32 *above = d > 0 && k < d ? &former[(k + d) / 2] : NULL;

    if (d == 0)
        return 0;
    return !left || (above && *left < *above) ? *above : (gint64)*left + 1;
}

/* The length of the shortest script; -1: it is longer than the limit. */
static gint64 find_length(struct search *search)
{
    gint64 n = search->shared[0]->len, m = search->shared[1]->len;

    for (gint64 d = 0; d <= MIN(n + m, DISTANCE_MAX); d++) {
        const gint32 *former = d > 0 ? search->ends->pdata[d - 1] : NULL;
        gint32 *ends = g_new(gint32, (gsize)d + 1);

        g_ptr_array_add(search->ends, ends);
        for (gint64 k = -d; k <= d; k += 2) {
            gint64 x = begin_of(former, d, k);

            while (x < n && x - k >= 0 && x - k < m && is_equal(search, x, x - k))
                x++;
            ends[(k + d) / 2] = (gint32)x;
            if (x >= n && x - k >= m)
                return d;
        }
    }
    return -1;
}

/* Marks the lines that are removed and added as `alone`, from the end of the path of length d to its begin. */
static void mark_script(const struct search *search, gint64 d)
{
    gint64 x = search->shared[0]->len, y = search->shared[1]->len;

    for (; d > 0; d--) {
        const gint32 *former = search->ends->pdata[d - 1];
        gint64 k = x - y, begin = begin_of(former, d, k);
        bool removes = k > -d && (k == d || former[(k + d) / 2 - 1] >= former[(k + d) / 2]);

        x = begin;
        y = begin - k;
        if (removes)
            line_of(search->lines[0], g_array_index(search->shared[0], guint, (guint)--x))->alone = true;
        else
            line_of(search->lines[1], g_array_index(search->shared[1], guint, (guint)--y))->alone = true;
    }
}

/* False: the difference is too large, and all lines in question are `alone` now. */
static bool compare(GArray *old, GArray *new)
{
    g_autoptr(GHashTable) numbers = g_hash_table_new(wb_line_hash, wb_line_equal);
    g_autoptr(GPtrArray) ends = g_ptr_array_new_with_free_func(g_free);
    g_autoptr(GArray) old_shared = NULL;
    g_autoptr(GArray) new_shared = NULL;
    struct search search = {.lines = {old, new}, .ends = ends};
    guint begin = 0, end = 0, shorter = MIN(old->len, new->len);
    gint64 length;

    add_numbers(old, numbers);
    add_numbers(new, numbers);
    while (begin < shorter && line_of(old, begin)->number == line_of(new, begin)->number)
        begin++;
    while (end < shorter - begin &&
           line_of(old, old->len - 1 - end)->number == line_of(new, new->len - 1 - end)->number)
        end++;
    old_shared = find_shared(old, begin, old->len - end, new, begin, new->len - end, g_hash_table_size(numbers));
    new_shared = find_shared(new, begin, new->len - end, old, begin, old->len - end, g_hash_table_size(numbers));
    search.shared[0] = old_shared;
    search.shared[1] = new_shared;
    length = find_length(&search);
    if (length >= 0)
        mark_script(&search, length);
    for (guint i = begin; length < 0 && i < old->len - end; i++)
        line_of(old, i)->alone = true;
    for (guint i = begin; length < 0 && i < new->len - end; i++)
        line_of(new, i)->alone = true;
    return length >= 0;
}

/* All lines of both, in the order in which they are shown. */
static GArray *merge(const GArray *old, const GArray *new)
{
    GArray *all = g_array_new(FALSE, TRUE, sizeof(struct wb_diff_line));
    guint x = 0, y = 0;

    while (x < old->len || y < new->len) {
        bool removed = x < old->len && line_of(old, x)->alone;
        bool added = !removed && y < new->len && line_of(new, y)->alone;
        const struct line *line = added ? line_of(new, y) : line_of(old, x);
        struct wb_diff_line shown = {.kind = removed ? WB_LINE_OLD : added ? WB_LINE_NEW : WB_LINE_BOTH,
                                     .text = line->line.text, .length = line->line.length};

        shown.old = added ? 0 : ++x;
        shown.new = removed ? 0 : ++y;
        g_array_append_val(all, shown);
    }
    return all;
}

/* Leaves lines out that are further from a change than `context`. */
static GArray *take_hunks(const GArray *all, guint context)
{
    GArray *shown = g_array_new(FALSE, FALSE, sizeof(struct wb_diff_line));
    guint next = 0; /* the first line that is not shown yet */

    for (guint i = 0; i < all->len; i++) {
        guint from = i > context ? i - context : 0, to = MIN(i + context + 1, all->len);

        if (g_array_index(all, struct wb_diff_line, i).kind == WB_LINE_BOTH)
            continue;
        for (guint at = MAX(from, next); at < to; at++) {
            struct wb_diff_line line = g_array_index(all, struct wb_diff_line, at);

            line.begins_hunk = shown->len == 0 || at > next;
            next = at + 1;
            g_array_append_val(shown, line);
        }
    }
    return shown;
}

GArray *wb_lines_diff(const char *old, size_t old_size, const char *new, size_t new_size, guint context,
                      bool *ret_exact)
{
    g_autoptr(GArray) old_lines = wb_lines_split(old, old_size, sizeof(struct line));
    g_autoptr(GArray) new_lines = wb_lines_split(new, new_size, sizeof(struct line));
    g_autoptr(GArray) all = NULL;

    *ret_exact = compare(old_lines, new_lines);
    all = merge(old_lines, new_lines);
    return take_hunks(all, context);
}
