/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "maintain/rewrite/tried.h"

/* Then all have their turn again. */
#define TRIED_MAX 65536u

struct tried {
    struct wb_object object;
    enum wb_object_file file;
    uint64_t length;
};

static guint hash(const void *key)
{
    const struct tried *tried = key;

    return wb_object_hash(&tried->object) * 2 + tried->file;
}

static gboolean equal(const void *a, const void *b)
{
    const struct tried *x = a, *y = b;

    return x->file == y->file && wb_object_equal(x->object, y->object);
}

GHashTable *wb_tried_new(void)
{
    return g_hash_table_new_full(hash, equal, g_free, NULL);
}

bool wb_tried_has(GHashTable *tried, struct wb_object object, enum wb_object_file file, uint64_t length)
{
    struct tried key = {object, file, length};
    const struct tried *found = tried ? g_hash_table_lookup(tried, &key) : NULL;

    return found && found->length == length;
}

void wb_tried_note(GHashTable *tried, struct wb_object object, enum wb_object_file file, uint64_t length)
{
    struct tried key = {object, file, length};

    if (!tried)
        return;
    if (g_hash_table_size(tried) >= TRIED_MAX)
        g_hash_table_remove_all(tried);
    g_hash_table_add(tried, g_memdup2(&key, sizeof(key)));
}
