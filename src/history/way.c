/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* The way of an object that was renamed: from name to name, as the catalogs of its directories tell. */
#include "history/internal.h"

#include "format/object_key.h"
#include <errno.h>
#include <string.h>

enum loss { STAYED, MOVED, KEPT };

/* So many names of one object are kept: 64 MiB, without the names. */
#define DEPARTURES_MAX (1u << 20)

/*
 * Each catalog on the way is read once, and the names that the object lost in it are kept, in order of names and time:
 * so the cost grows with the number of records, however often the object was renamed, also to and fro.
 */
struct departure {
    int64_t when;
    uint32_t links;
    struct wb_object to_dir;
    const char *name, *to_name; /* in the names of the way; to_name NULL: it was lost */
};

struct way {
    struct wb_history *history;
    struct wb_object object;
    int64_t until;
    GHashTable *dirs;    /* struct wb_object -> GArray of struct departure */
    GStringChunk *names;
    size_t count;
};

static gint compare(gconstpointer a, gconstpointer b)
{
    const struct departure *x = a, *y = b;
    int r = strcmp(x->name, y->name);

    return r != 0 ? r : x->when < y->when ? -1 : x->when > y->when;
}

static const char *keep_name(struct way *way, const char *name, size_t length)
{
    char text[WB_NAME_MAX + 1];

    memcpy(text, name, length);
    text[length] = '\0';
    return g_string_chunk_insert_const(way->names, text);
}

static int note_departures(struct way *way, const struct wb_record *record, GArray *list)
{
    for (uint32_t i = 0; record->type == WB_REC_NAME && i < record->name.count; i++) {
        const struct wb_slot *slot = &record->name.slots[i];
        struct departure one = {.when = record->when, .links = slot->attrs.nlink};

        if (!slot->present || !wb_object_equal(slot->object, way->object))
            continue;
        if (++way->count > DEPARTURES_MAX)
            return wb_history_fail(-EIO, "an object was renamed more than %u times", DEPARTURES_MAX);
        one.name = keep_name(way, slot->name, slot->name_length);
        if (slot->fate == WB_FATE_MOVED) {
            one.to_dir = slot->to_dir;
            one.to_name = keep_name(way, slot->to_name, slot->to_length);
        }
        g_array_append_val(list, one);
    }
    return 0;
}

/* All departures from `dir` later than `when`; later visits of the way ask for later ones. NULL: *ret_error. */
static const GArray *departures(struct way *way, struct wb_object dir, int64_t when, int *ret_error)
{
    GArray *list = g_hash_table_lookup(way->dirs, &dir);
    const struct wb_record *record;
    struct wb_trace trace;
    int r;

    if (list)
        return list;
    r = wb_trace_open(&trace, way->history, dir, WB_FILE_CATALOG, when);
    if (r == 0) {
        list = g_array_new(FALSE, FALSE, sizeof(struct departure));
        trace.through = true; /* what is found is compared with what is looked for */
        while (r == 0 && (r = wb_trace_next(&trace, &record)) == 0)
            r = record->when <= way->until ? note_departures(way, record, list) : 0;
        wb_trace_close(&trace);
    }
    if (r < 0) {
        if (list)
            g_array_unref(list);
        *ret_error = r;
        return NULL;
    }
    g_array_sort(list, compare);
    g_hash_table_insert(way->dirs, g_memdup2(&dir, sizeof(dir)), list);
    return list;
}

/* The first loss of the object by its present stop; a move takes the stop along. */
static int first_loss(struct way *way, struct wb_stop *stop)
{
    struct departure key = {.name = stop->name, .when = stop->when};
    const struct departure *found;
    guint low = 0, high;
    const GArray *list;
    int r = 0;

    list = departures(way, stop->dir, stop->when, &r);
    if (!list)
        return r;
    for (high = list->len; low < high;) {
        guint middle = low + (high - low) / 2;

        if (compare(&g_array_index(list, struct departure, middle), &key) <= 0)
            low = middle + 1;
        else
            high = middle;
    }
    found = low < list->len ? &g_array_index(list, struct departure, low) : NULL;
    if (!found || strcmp(found->name, stop->name) != 0)
        return STAYED;
    stop->when = found->when;
    stop->links = found->links;
    if (!found->to_name)
        return KEPT;
    stop->dir = found->to_dir;
    g_strlcpy(stop->name, found->to_name, sizeof(stop->name));
    return MOVED;
}

/* A lost object was bound to a name again: the newest PLACE in its own log. 1, 0 or -errno. */
static int restored_to(struct wb_history *history, struct wb_object object, enum wb_object_file file,
                       int64_t until, struct wb_stop *stop)
{
    const struct wb_record *record;
    struct wb_trace trace;
    int r;

    r = wb_trace_open(&trace, history, object, file, stop->when);
    if (r < 0)
        return r;
    trace.through = true;
    while ((r = wb_trace_next(&trace, &record)) == 0) {
        if (record->type != WB_REC_PLACE || record->when > until)
            continue;
        *stop = (struct wb_stop){.dir = record->place.parent, .when = record->when};
        memcpy(stop->name, record->place.name, record->place.name_length);
        break;
    }
    wb_trace_close(&trace);
    return r < 0 ? r : r == 0;
}

static int follow(struct way *way, enum wb_object_file file, struct wb_stop stops[2])
{
    for (;;) {
        struct wb_stop at = stops[0];
        int r = first_loss(way, &at);

        if (r == KEPT) {
            stops[0].lost = at.when;
            stops[0].links = at.links;
            r = restored_to(way->history, way->object, file, way->until, &at);
            if (r == 0)
                return 1;
        }
        if (r <= 0)
            return r;
        stops[1] = stops[0];
        stops[0] = at;
    }
}

/* Ends: each step goes to a later moment, and there are so many. */
int wb_way_follow(struct wb_history *history, struct wb_object object, enum wb_object_file file, int64_t until,
                  struct wb_stop stops[2])
{
    struct way way = {.history = history, .object = object, .until = until};
    int r;

    way.dirs = g_hash_table_new_full(wb_object_hash, wb_object_is_key, g_free, (GDestroyNotify)g_array_unref);
    way.names = g_string_chunk_new(4096);
    r = follow(&way, file, stops);
    g_string_chunk_free(way.names);
    g_hash_table_unref(way.dirs);
    return r;
}

int wb_locate_forward(struct wb_history *history, struct wb_object object, int64_t until, struct wb_object *dir,
                      char name[WB_NAME_MAX + 1], int64_t *when)
{
    struct wb_stop stops[2] = {{.dir = *dir, .when = *when}};
    int r;

    memcpy(stops[0].name, name, WB_NAME_MAX + 1);
    r = wb_way_follow(history, object, WB_FILE_UNDO, until, stops);
    *dir = stops[0].dir;
    *when = stops[0].when;
    memcpy(name, stops[0].name, WB_NAME_MAX + 1);
    return r > 0 ? WB_ABSENT : r;
}
