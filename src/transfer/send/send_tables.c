/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* The tables of what the records contain: objects, names and directories. */
#include "transfer/send/send.h"

#include "format/object_key.h"
#include <string.h>

static guint name_hash(const void *key)
{
    const struct wb_sent_name *name = key;

    return wb_object_hash(&name->dir) * 33 ^ g_str_hash(name->name);
}

static gboolean name_equal(const void *a, const void *b)
{
    const struct wb_sent_name *x = a, *y = b;

    return wb_object_equal(x->dir, y->dir) && strcmp(x->name, y->name) == 0;
}

static void sent_free(void *data)
{
    struct wb_sent *sent = data;

    if (sent->ranges)
        g_array_unref(sent->ranges);
    if (sent->times)
        g_array_unref(sent->times);
    g_free(sent);
}

struct wb_sent *wb_sending_object(struct wb_sending *sending, struct wb_object object)
{
    struct wb_sent *sent = g_hash_table_lookup(sending->objects, &object);

    if (sent)
        return sent;
    sent = g_new0(struct wb_sent, 1);
    sent->object = object;
    sent->least = UINT64_MAX;
    g_hash_table_add(sending->objects, sent);
    return sent;
}

bool wb_sending_has_name(const struct wb_sending *sending, struct wb_object dir, const char *name)
{
    struct wb_sent_name key = {.dir = dir};

    g_strlcpy(key.name, name, sizeof(key.name));
    return g_hash_table_contains(sending->names, &key);
}

void wb_sending_add_dir(GHashTable *table, struct wb_object dir)
{
    struct wb_sent_name *key = g_new0(struct wb_sent_name, 1);

    key->dir = dir;
    g_hash_table_add(table, key);
}

bool wb_sending_has_dir(GHashTable *table, struct wb_object dir)
{
    struct wb_sent_name key = {.dir = dir};

    return g_hash_table_contains(table, &key);
}
void wb_sending_note_gap(struct wb_sending *sending, struct wb_object object)
{
    wb_sending_object(sending, object)->whole = true;
    wb_sending_add_dir(sending->dirs, object);
    wb_sending_add_dir(sending->unknown, object);
}

GHashTable *wb_sending_objects_new(void)
{
    return g_hash_table_new_full(wb_object_hash, wb_object_is_key, sent_free, NULL);
}

GHashTable *wb_sending_names_new(void)
{
    return g_hash_table_new_full(name_hash, name_equal, g_free, NULL);
}
