/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "maintain/usage/largest.h"

static void file_free(void *data)
{
    struct wb_usage_file *file = data;

    g_free(file->name);
    g_free(file);
}

static int by_size(const void *a, const void *b)
{
    const struct wb_usage_file *x = *(const struct wb_usage_file *const *)a;
    const struct wb_usage_file *y = *(const struct wb_usage_file *const *)b;

    if (x->disk != y->disk)
        return x->disk < y->disk ? 1 : -1;
    return x->bytes < y->bytes ? 1 : x->bytes > y->bytes ? -1 : 0;
}

GPtrArray *wb_usage_largest_new(void)
{
    return g_ptr_array_new_with_free_func(file_free);
}

void wb_usage_largest_add(GPtrArray *largest, struct wb_usage_file file, unsigned most)
{
    struct wb_usage_file *copy = g_try_new(struct wb_usage_file, 1);

    if (!copy) {
        g_free(file.name);
        return;
    }
    *copy = file;
    g_ptr_array_add(largest, copy);
    if (largest->len >= most * 2)
        wb_usage_largest_cut(largest, most);
}

void wb_usage_largest_cut(GPtrArray *largest, unsigned most)
{
    g_ptr_array_sort(largest, by_size);
    if (largest->len > most)
        g_ptr_array_set_size(largest, (gint)most);
}
