/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "daemon/control/parents.h"

#include "format/object_key.h"
#include <glib.h>
#include <string.h>

/* A path has no more names than 4096; several lists may be read at once. */
#define KEPT 16384

struct parent {
    struct wb_object object;
    char name[]; /* in it */
};

struct wb_parents {
    pthread_mutex_t lock;
    GHashTable *table; /* struct wb_object -> struct parent */
    uint64_t generation;
};

struct wb_parents *wb_parents_new(void)
{
    struct wb_parents *parents = g_try_new0(struct wb_parents, 1);

    if (!parents)
        return NULL;
    pthread_mutex_init(&parents->lock, NULL);
    parents->table = g_hash_table_new_full(wb_object_hash, wb_object_is_key, g_free, g_free);
    return parents;
}

struct wb_parents *wb_parents_free(struct wb_parents *parents)
{
    if (!parents)
        return NULL;
    g_hash_table_unref(parents->table);
    pthread_mutex_destroy(&parents->lock);
    g_free(parents);
    return NULL;
}

/* With the lock held. */
static void renew(struct wb_parents *parents, uint64_t generation)
{
    if (parents->generation != generation)
        g_hash_table_remove_all(parents->table);
    parents->generation = generation;
}

void wb_parents_keep(struct wb_parents *parents, uint64_t generation, struct wb_object dir, struct wb_object parent,
                     const char *name)
{
    size_t size = strlen(name) + 1;
    struct parent *own;

    if (!parents)
        return;
    own = g_malloc(sizeof(*own) + size);
    own->object = parent;
    memcpy(own->name, name, size);
    pthread_mutex_lock(&parents->lock);
    /* A place that was read before history was deleted is not kept afterwards. */
    if (generation >= parents->generation) {
        renew(parents, generation);
        if (g_hash_table_size(parents->table) == KEPT)
            g_hash_table_remove_all(parents->table);
        g_hash_table_replace(parents->table, g_memdup2(&dir, sizeof(dir)), g_steal_pointer(&own));
    }
    pthread_mutex_unlock(&parents->lock);
    g_free(own);
}

bool wb_parents_find(struct wb_parents *parents, uint64_t generation, struct wb_object dir,
                     struct wb_object *ret_parent, char ret_name[WB_NAME_MAX + 1])
{
    const struct parent *found = NULL;

    if (!parents)
        return false;
    pthread_mutex_lock(&parents->lock);
    if (parents->generation == generation)
        found = g_hash_table_lookup(parents->table, &dir);
    if (found) {
        *ret_parent = found->object;
        g_strlcpy(ret_name, found->name, WB_NAME_MAX + 1);
    }
    pthread_mutex_unlock(&parents->lock);
    return found != NULL;
}
