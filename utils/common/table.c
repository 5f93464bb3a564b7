/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "common/table.h"
#include "common/pager.h"
#include "common/text.h"
#include <string.h>

/*
 * By hand: libsmartcols leaves colours and the bytes of names as they are only after scols_table_enable_noencoding, and
 * then may never end on a byte that is no character in the locale (mbs_nwidth, in 2.38 and up to 2026). It would
 * also cut a text without a mark.
 */

/* Rows looked at before the first is printed. */
#define HELD_MAX 200

struct wb_table {
    FILE *out;
    struct wb_column columns[WB_TABLE_COLUMNS_MAX];
    unsigned count;
    unsigned widths[WB_TABLE_COLUMNS_MAX];
    unsigned terminal; /* columns, 0: no terminal */
    GPtrArray *held;   /* rows (arrays of texts) not printed yet; NULL: streaming */
};

struct wb_table *wb_table_new(FILE *out, const struct wb_column *columns, unsigned count)
{
    struct wb_table *table = g_new0(struct wb_table, 1);

    g_assert(count <= WB_TABLE_COLUMNS_MAX);
    table->out = out;
    memcpy(table->columns, columns, count * sizeof(*columns));
    table->count = count;
    table->held = g_ptr_array_new_with_free_func((GDestroyNotify)g_strfreev);
    table->terminal = out == stdout ? wb_pager_columns() : 0;
    for (unsigned i = 0; i < count; i++)
        table->widths[i] = wb_text_width(columns[i].title);
    return table;
}

static void print_row(const struct wb_table *table, const char *const *cells)
{
    unsigned used = 0;

    for (unsigned i = 0; i < table->count; i++) {
        unsigned width = wb_text_width(cells[i]);
        unsigned pad = table->widths[i] > width ? table->widths[i] - width : 0;

        if (i + 1 == table->count && !table->columns[i].right) {
            unsigned left = table->terminal > used ? table->terminal - used : 0;
            g_autofree char *cut = wb_text_cut(cells[i], left > 8 ? left : 8);

            fputs(table->terminal ? cut : cells[i], table->out);
            break;
        }
        fprintf(table->out, "%*s%s%*s%s", table->columns[i].right ? (int)pad : 0, "", cells[i],
                table->columns[i].right ? 0 : (int)pad, "", i + 1 < table->count ? "  " : "");
        used += width + pad + 2;
    }
    fputc('\n', table->out);
}

static void print_held(struct wb_table *table)
{
    const char *titles[WB_TABLE_COLUMNS_MAX];

    if (!table->held)
        return;
    for (unsigned i = 0; i < table->count; i++)
        titles[i] = table->columns[i].title;
    if (table->held->len > 0)
        print_row(table, titles);
    for (guint i = 0; i < table->held->len; i++)
        print_row(table, table->held->pdata[i]);
    g_clear_pointer(&table->held, g_ptr_array_unref);
}

void wb_table_add(struct wb_table *table, const char *const *cells)
{
    char **row;

    for (unsigned i = 0; i < table->count; i++)
        table->widths[i] = MAX(table->widths[i], wb_text_width(cells[i]));
    if (!table->held) {
        print_row(table, cells);
        return;
    }
    row = g_new0(char *, table->count + 1);
    for (unsigned i = 0; i < table->count; i++)
        row[i] = g_strdup(cells[i]);
    g_ptr_array_add(table->held, row);
    if (table->held->len >= HELD_MAX)
        print_held(table);
}

struct wb_table *wb_table_free(struct wb_table *table)
{
    if (table) {
        print_held(table);
        g_free(table);
    }
    return NULL;
}
