/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* The names of an erasure, by the directories that they are in. */
#include "maintain/erase/erase_set.h"

#include "format/object_key.h"
#include <errno.h>
#include <string.h>

static void target_free(void *data)
{
    struct wb_erased_name *target = data;

    g_clear_pointer(&target->shared, g_hash_table_unref);
    g_free(target);
}

static void origin_free(void *data)
{
    struct wb_origin *origin = data;

    g_hash_table_unref(origin->names);
    g_free(origin);
}

void wb_erasure_init(struct wb_erasure *erasure, struct wb_history *history, unsigned flags)
{
    *erasure = (struct wb_erasure){.history = history, .store = wb_history_store(history), .flags = flags};
    erasure->targets = g_ptr_array_new_with_free_func(target_free);
    erasure->origins = g_hash_table_new_full(wb_object_hash, wb_object_is_key, NULL, origin_free);
    erasure->candidates = g_hash_table_new_full(wb_left_name_hash, wb_left_name_equal, g_free, NULL);
    erasure->objects = g_hash_table_new_full(wb_object_hash, wb_object_is_key, NULL, g_free);
    erasure->catalogs = g_hash_table_new_full(wb_object_hash, wb_object_is_key, g_free, NULL);
    erasure->departures = g_hash_table_new_full(g_str_hash, g_str_equal, g_free, NULL);
    erasure->actors = g_hash_table_new(NULL, NULL);
    erasure->order = g_ptr_array_new();
    erasure->written = g_array_new(FALSE, FALSE, sizeof(struct wb_object));
}

void wb_erasure_deinit(struct wb_erasure *erasure)
{
    g_clear_pointer(&erasure->written, g_array_unref);
    g_clear_pointer(&erasure->order, g_ptr_array_unref);
    g_clear_pointer(&erasure->objects, g_hash_table_unref);
    g_clear_pointer(&erasure->candidates, g_hash_table_unref);
    g_clear_pointer(&erasure->catalogs, g_hash_table_unref);
    g_clear_pointer(&erasure->departures, g_hash_table_unref);
    g_clear_pointer(&erasure->actors, g_hash_table_unref);
    g_clear_pointer(&erasure->origins, g_hash_table_unref);
    g_clear_pointer(&erasure->targets, g_ptr_array_unref);
}

/* ---- names ----------------------------------------------------------------------------------- */

int wb_erasure_add(struct wb_erasure *erasure, struct wb_spot *dir, const char *name)
{
    struct wb_origin *origin = wb_erasure_origin(erasure, wb_spot_object(dir));
    struct wb_erased_name *target;

    if (origin && g_hash_table_contains(origin->names, name))
        return -ENOENT;
    if (!origin) {
        origin = g_new0(struct wb_origin, 1);
        origin->dir = wb_spot_object(dir);
        origin->names = g_hash_table_new(g_str_hash, g_str_equal);
        g_hash_table_insert(erasure->origins, &origin->dir, origin);
    }
    target = g_new0(struct wb_erased_name, 1);
    target->dir = dir;
    target->name = name;
    target->shared = g_hash_table_new(NULL, NULL);
    g_ptr_array_add(erasure->targets, target);
    g_hash_table_insert(origin->names, (void *)(uintptr_t)name, target);
    return 0;
}

void wb_erasure_refuse(struct wb_erasure *erasure, struct wb_erased_name *target, int error)
{
    struct wb_origin *origin = wb_erasure_origin(erasure, wb_spot_object(target->dir));

    target->refused = error;
    g_hash_table_remove(origin->names, target->name);
    if (g_hash_table_size(origin->names) == 0)
        g_hash_table_remove(erasure->origins, &origin->dir);
}

struct wb_origin *wb_erasure_origin(const struct wb_erasure *erasure, struct wb_object dir)
{
    return g_hash_table_lookup(erasure->origins, &dir);
}

struct wb_erased_name *wb_erasure_name(const struct wb_origin *origin, const char *name, uint8_t length)
{
    char text[WB_NAME_MAX + 1];

    memcpy(text, name, length);
    text[length] = '\0';
    return g_hash_table_lookup(origin->names, text);
}

bool wb_erasure_is_name(const struct wb_origin *origin, const char *name, uint8_t length)
{
    return origin && wb_erasure_name(origin, name, length);
}
