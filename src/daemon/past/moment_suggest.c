/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Names like one that does not exist: the edit distance of Levenshtein, and common beginnings. */
#include "daemon/past/moment.h"

#include "store/tables/snapshots.h"
#include <glib.h>
#include <string.h>

#define SUGGESTIONS 4

static unsigned distance(const char *a, const char *b)
{
    size_t length = strlen(b);
    g_autofree unsigned *row = g_new(unsigned, length + 1);

    for (size_t j = 0; j <= length; j++)
        row[j] = (unsigned)j;
    for (size_t i = 1; a[i - 1]; i++) {
        unsigned diagonal = row[0];

        row[0] = (unsigned)i;
        for (size_t j = 1; j <= length; j++) {
            unsigned above = row[j];

            row[j] = MIN(MIN(above, row[j - 1]) + 1, diagonal + (a[i - 1] != b[j - 1]));
            diagonal = above;
        }
    }
    return row[length];
}

static bool is_close(const char *wanted, const char *name)
{
    size_t length = strlen(wanted);

    if (length >= 2 && (g_str_has_prefix(name, wanted) || g_str_has_prefix(wanted, name)))
        return true;
    return length < WB_NAME_MAX && distance(wanted, name) <= 1 + length / 4;
}

char *wb_moment_suggest(struct wb_store *store, const char *name)
{
    struct wb_snapshots *all __attribute__((cleanup(wb_snapshots_unrefp))) = NULL;
    const char *found[SUGGESTIONS];
    unsigned count = 0;
    GString *text = g_string_new(NULL);

    if (wb_snapshots_get(store, &all) == 0)
        for (size_t i = all->count; i-- > 0 && count < SUGGESTIONS;)
            if (is_close(name, all->list[i].name))
                found[count++] = all->list[i].name;
    for (unsigned i = 0; i < count; i++)
        g_string_append_printf(text, "%s%s", i == 0 ? "" : i + 1 < count ? ", " : " or ", found[i]);
    return g_string_free(text, FALSE);
}
