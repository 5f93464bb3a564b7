/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "maintain/thin/thin_names.h"

#include "format/object_key.h"
#include "maintain/usage/usage_parts.h"
#include <errno.h>
#include <string.h>
#include <sys/stat.h>

/* Held in memory, 40 bytes each and the names themselves. */
#define NAMES_MAX (4u << 20)
#define DISTRUSTED_MAX 4096u
void wb_thin_names_init(struct wb_thin_names *names, struct wb_store *store, bool (*stop)(void *data), void *data)
{
    *names = (struct wb_thin_names){.list = g_array_new(FALSE, FALSE, sizeof(struct wb_thin_name)),
                                    .arrivals = g_array_new(FALSE, FALSE, sizeof(struct wb_thin_arrival)),
                                    .distrusted = g_hash_table_new_full(wb_object_hash, wb_object_is_key, g_free, NULL),
                                    .strings = g_string_chunk_new(4096)};
    wb_usage_init(&names->dirs, store, 0);
    names->dirs.stop = stop;
    names->dirs.stop_data = data;
}

void wb_thin_names_deinit(struct wb_thin_names *names)
{
    wb_usage_deinit(&names->dirs);
    g_array_unref(names->list);
    g_array_unref(names->arrivals);
    g_hash_table_unref(names->distrusted);
    g_clear_pointer(&names->strayed, g_hash_table_unref);
    g_string_chunk_free(names->strings);
}

/* ---- names in records ------------------------------------------------------------------------ */

static const char *keep_string(struct wb_thin_names *names, const char *bytes, size_t length)
{
    char text[WB_NAME_MAX + 1];

    memcpy(text, bytes, MIN(length, WB_NAME_MAX));
    text[MIN(length, WB_NAME_MAX)] = '\0';
    return g_string_chunk_insert_const(names->strings, text);
}

static int note(struct wb_thin_names *names, struct wb_object object, struct wb_object dir, const char *name,
                size_t length)
{
    if (length == 0 || wb_object_is_none(object) || wb_object_is_none(dir))
        return 0;
    if (names->list->len >= NAMES_MAX)
        return -E2BIG;
    g_array_append_val(names->list, ((struct wb_thin_name){object, dir, keep_string(names, name, length)}));
    return 0;
}

/* Notes to which name something came, and from which directory; not which object came. */
static int note_arrival(struct wb_thin_names *names, struct wb_object dir, const struct wb_slot *slot)
{
    if (slot->from_length == 0 || wb_object_is_none(slot->from_dir) || wb_object_equal(slot->from_dir, dir))
        return 0;
    if (names->arrivals->len >= NAMES_MAX)
        return -E2BIG;
    g_array_append_val(names->arrivals, ((struct wb_thin_arrival){
                                            .to = {.dir = dir, .name = keep_string(names, slot->name,
                                                                                   slot->name_length)},
                                            .from = slot->from_dir}));
    return 0;
}

static int take_slot(struct wb_thin_names *names, struct wb_object dir, const struct wb_slot *slot)
{
    int r = note_arrival(names, dir, slot);

    if (r == 0 && slot->present && S_ISREG(slot->attrs.mode)) {
        r = note(names, slot->object, dir, slot->name, slot->name_length);
        if (r == 0)
            r = note(names, slot->object, slot->to_dir, slot->to_name, slot->to_length);
    }
    return r;
}

static void place(struct wb_thin_names *names, const struct wb_rec_place *place)
{
    struct wb_usage_dir *dir = wb_usage_dir(&names->dirs, place->self);

    if (!dir || dir->name || place->name_length == 0)
        return;
    dir->name = g_strndup(place->name, place->name_length);
    dir->parent = place->parent;
}

int wb_thin_names_take(struct wb_thin_names *names, struct wb_object dir, const struct wb_record *record)
{
    struct wb_object via = wb_object_is_none(record->via.dir) ? dir : record->via.dir;
    int r = 0;

    if (record->type == WB_REC_PLACE && wb_object_equal(record->place.self, dir))
        place(names, &record->place);
    else if (record->type == WB_REC_ATTR)
        r = note(names, record->attr.object, via, record->via.name, record->via.length);
    else if (record->type == WB_REC_XATTR)
        r = note(names, record->xattr.object, via, record->via.name, record->via.length);
    for (uint32_t i = 0; r == 0 && record->type == WB_REC_NAME && i < record->name.count; i++)
        r = take_slot(names, dir, &record->name.slots[i]);
    return r;
}

void wb_thin_names_via(struct wb_thin_names *names, GArray *vias, const struct wb_record *record)
{
    const struct wb_thin_name *last = vias->len ? &g_array_index(vias, struct wb_thin_name, vias->len - 1) : NULL;
    struct wb_thin_name one = {.dir = record->via.dir};

    if ((record->type != WB_REC_DATA && record->type != WB_REC_ATTR && record->type != WB_REC_XATTR) ||
        record->via.length == 0 || wb_object_is_none(one.dir))
        return;
    one.name = keep_string(names, record->via.name, record->via.length);
    /* They are the same for most. */
    if (!last || last->name != one.name || !wb_object_equal(last->dir, one.dir))
        g_array_append_val(vias, one);
}

static gint by_object(const void *a, const void *b)
{
    return wb_object_compare(((const struct wb_thin_name *)a)->object, ((const struct wb_thin_name *)b)->object);
}

static guint name_hash(gconstpointer data)
{
    const struct wb_thin_name *name = data;

    return g_direct_hash(name->name) ^ (guint)name->dir.ino;
}

static gboolean name_equal(gconstpointer a, gconstpointer b)
{
    const struct wb_thin_name *one = a, *other = b;

    return one->name == other->name && wb_object_equal(one->dir, other->dir);
}

/* A newer place of a directory may be lost with its catalog: it is where it is found in the tree, or nowhere. */
static void displace(struct wb_thin_names *names)
{
    GHashTableIter iter;
    void *self;

    g_hash_table_iter_init(&iter, names->distrusted);
    while (g_hash_table_iter_next(&iter, &self, NULL)) {
        struct wb_usage_dir *dir = g_hash_table_lookup(names->dirs.dirs, self);

        if (dir)
            g_clear_pointer(&dir->name, g_free);
    }
}

void wb_thin_names_settle(struct wb_thin_names *names)
{
    g_array_sort(names->list, by_object);
    names->strayed = g_hash_table_new(name_hash, name_equal);
    for (guint i = 0; i < names->arrivals->len; i++) {
        struct wb_thin_arrival *arrival = &g_array_index(names->arrivals, struct wb_thin_arrival, i);

        if (g_hash_table_contains(names->distrusted, &arrival->from))
            g_hash_table_insert(names->strayed, &arrival->to, &arrival->from);
    }
    displace(names);
}

int wb_thin_names_distrust(struct wb_thin_names *names, struct wb_object dir)
{
    if (g_hash_table_size(names->distrusted) >= DISTRUSTED_MAX)
        return -E2BIG;
    g_hash_table_add(names->distrusted, g_memdup2(&dir, sizeof(dir)));
    return 0;
}

/* ---- paths ----------------------------------------------------------------------------------- */

/* g_free; NULL: not known. */
static char *path_of(struct wb_thin_names *names, const struct wb_thin_name *name)
{
    const struct wb_usage_dir *chain[WB_USAGE_DEPTH_MAX];
    struct wb_object root = names->dirs.store->header.root;
    GString *path;
    unsigned depth = 0;

    if (!wb_object_equal(name->dir, root)) {
        const struct wb_usage_dir *dir = g_hash_table_lookup(names->dirs.dirs, &name->dir);

        /* The root has an entry, so that chains end there. */
        wb_usage_dir(&names->dirs, root);
        if (!dir || !wb_usage_chain(&names->dirs, dir, root, chain, &depth))
            return NULL;
    }
    path = g_string_new(NULL);
    for (unsigned i = 0; i < depth; i++)
        g_string_append_printf(path, "%s/", chain[i]->name);
    g_string_append(path, name->name);
    return g_string_free(path, FALSE);
}

static int take_path(struct wb_thin_names *names, const struct wb_thin_name *name,
                     int (*take)(void *data, const char *path), void *data)
{
    g_autofree char *path = path_of(names, name);
    int r;

    if (!path && !names->walked) {
        names->walked = names->dirs.all = true;
        r = wb_usage_tree(&names->dirs, INT64_MAX);
        if (r < 0)
            return r;
        path = path_of(names, name);
    }
    return take(data, path);
}

int wb_thin_names_one(struct wb_thin_names *names, struct wb_object dir, const char *name,
                      int (*take)(void *data, const char *path), void *data)
{
    return take_path(names, &(struct wb_thin_name){.dir = dir, .name = name}, take, data);
}

/* The first of the names of an object. */
static guint find(const struct wb_thin_names *names, struct wb_object object)
{
    const struct wb_thin_name *list = (const struct wb_thin_name *)(const void *)names->list->data;
    guint low = 0, high = names->list->len;

    while (low < high) {
        guint middle = low + (high - low) / 2;

        if (wb_object_compare(list[middle].object, object) < 0)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

int wb_thin_names_each(struct wb_thin_names *names, struct wb_object object, const GArray *vias, uint32_t links,
                       int (*take)(void *data, const char *path), void *data)
{
    const struct wb_thin_name *list = (const struct wb_thin_name *)(const void *)names->list->data;
    g_autoptr(GHashTable) known = g_hash_table_new(name_hash, name_equal);
    int r = 0;

    for (guint i = 0; r == 0 && i < vias->len; i++)
        if (g_hash_table_add(known, &g_array_index(vias, struct wb_thin_name, i)))
            r = take_path(names, &g_array_index(vias, struct wb_thin_name, i), take, data);
    for (guint low = find(names, object); r == 0 && low < names->list->len; low++) {
        if (!wb_object_equal(list[low].object, object))
            break;
        if (g_hash_table_add(known, (void *)(uintptr_t)&list[low]))
            r = take_path(names, &list[low], take, data);
    }
    /* No record has the names that it had before the history began and by which it was never changed. */
    return r == 0 && g_hash_table_size(known) < MAX(links, 1) ? take(data, NULL) : r;
}

/* Whether a file that had that name had another one in a directory whose catalog is damaged, or may have. */
static bool is_doubtful(struct wb_thin_names *names, const struct wb_thin_name *name, struct wb_object *ret)
{
    const struct wb_object *from = g_hash_table_lookup(names->strayed, name);

    if (!from && g_hash_table_contains(names->distrusted, &name->dir))
        from = &name->dir;
    if (from)
        *ret = *from;
    return from != NULL;
}

bool wb_thin_names_doubted(struct wb_thin_names *names, struct wb_object object, const GArray *vias, bool anywhere,
                           struct wb_object *ret)
{
    GHashTableIter iter;
    void *any;

    g_hash_table_iter_init(&iter, names->distrusted);
    if (!g_hash_table_iter_next(&iter, &any, NULL))
        return false;
    *ret = *(const struct wb_object *)any;
    if (anywhere)
        return true;
    for (guint i = 0; i < vias->len; i++)
        if (is_doubtful(names, &g_array_index(vias, struct wb_thin_name, i), ret))
            return true;
    for (guint i = find(names, object); i < names->list->len; i++) {
        const struct wb_thin_name *name = &g_array_index(names->list, struct wb_thin_name, i);

        if (!wb_object_equal(name->object, object))
            break;
        if (is_doubtful(names, name, ret))
            return true;
    }
    return false;
}
