/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Follows an object that was renamed: from name to name, by the catalogs of its directories. */
#include "history/internal.h"

#include "format/object_key.h"
#include "history/resolve/departures.h"
#include <errno.h>
#include <string.h>

enum step { STAYED, MOVED, KEPT };

/* So many are in memory at once: 64 MiB, without the names. Once there are SHARED_MAX, those of the object alone. */
#define DEPARTURES_MAX (1u << 20)
#define SHARED_MAX (DEPARTURES_MAX / 4)

/* Each catalog on the way is read once: so the cost grows with the number of records, however often it was renamed. */
struct way {
    struct wb_history *history;
    struct wb_object object;
    int64_t since, until;
    GHashTable *dirs; /* struct wb_object -> struct wb_departures */
    size_t count;
};

static void departures_free(void *data)
{
    wb_departures_unref(data);
}

/*
 * All departures from `dir` later than `when`; later visits of the way ask for later ones. Those since the beginning
 * of the way are gathered, so that a search for other objects from that moment on finds them; but unknown
 * changes before `when` do not matter. NULL: *ret_error.
 */
static const struct wb_departures *departures(struct way *way, struct wb_object dir, int64_t when, int *ret_error)
{
    struct wb_departures *list = g_hash_table_lookup(way->dirs, &dir);
    bool alone = way->count >= SHARED_MAX;
    int r;

    if (list)
        return list;
    r = wb_departures_of(way->history, dir, way->object, way->since, alone, &list);
    if (r < 0 && when > way->since)
        r = wb_departures_of(way->history, dir, way->object, when, alone, &list);
    if (r < 0) {
        *ret_error = r;
        return NULL;
    }
    g_hash_table_insert(way->dirs, g_memdup2(&dir, sizeof(dir)), list);
    way->count += wb_departures_count(list);
    if (way->count > DEPARTURES_MAX) {
        *ret_error = wb_history_fail(-EIO, "an object was renamed more than %u times", DEPARTURES_MAX);
        return NULL;
    }
    return list;
}

/* The first loss of the object by its present stop; a move takes the stop along. */
static int first_loss(struct way *way, struct wb_rename_hop *hop)
{
    const struct wb_departures *list;
    const struct wb_departure *found;
    int r = 0;

    list = departures(way, hop->dir, hop->when, &r);
    if (!list)
        return r;
    found = wb_departures_find(list, way->object, hop->name, hop->when);
    if (!found || found->when > way->until)
        return STAYED;
    hop->when = found->when;
    hop->links = found->links;
    if (!found->to_name)
        return KEPT;
    hop->dir = found->to_dir;
    g_strlcpy(hop->name, found->to_name, sizeof(hop->name));
    return MOVED;
}

/* A lost object was bound to a name again: the newest PLACE in its own log. 1, 0 or -errno. */
static int restored_to(struct wb_history *history, struct wb_object object, enum wb_object_file file, int64_t until,
                       struct wb_rename_hop *hop)
{
    const struct wb_record *record;
    struct wb_log_scan scan;
    int r;

    r = wb_log_scan_open(&scan, history, object, file, hop->when);
    if (r < 0)
        return r;
    scan.through = true;
    while ((r = wb_log_scan_next(&scan, &record)) == 0) {
        if (record->type != WB_REC_PLACE || record->when > until)
            continue;
        *hop = (struct wb_rename_hop){.dir = record->place.parent, .when = record->when};
        memcpy(hop->name, record->place.name, record->place.name_length);
        break;
    }
    wb_log_scan_close(&scan);
    return r < 0 ? r : r == 0;
}

static int follow(struct way *way, enum wb_object_file file, struct wb_rename_hop hops[2])
{
    for (;;) {
        struct wb_rename_hop at = hops[0];
        int r = first_loss(way, &at);

        if (r == KEPT) {
            hops[0].lost = at.when;
            hops[0].links = at.links;
            r = restored_to(way->history, way->object, file, way->until, &at);
            if (r == 0)
                return 1;
        }
        if (r <= 0)
            return r;
        hops[1] = hops[0];
        hops[0] = at;
    }
}

/* Ends: each step goes to a later moment, and there are so many. */
int wb_rename_chain_follow(struct wb_history *history, struct wb_object object, enum wb_object_file file, int64_t until,
                           struct wb_rename_hop hops[2])
{
    struct way way = {.history = history, .object = object, .since = hops[0].when, .until = until};
    int r;

    way.dirs = g_hash_table_new_full(wb_object_hash, wb_object_is_key, g_free, departures_free);
    r = follow(&way, file, hops);
    g_hash_table_unref(way.dirs);
    return r;
}

int wb_resolve_forward(struct wb_history *history, struct wb_object object, int64_t until, struct wb_object *dir,
                       char name[WB_NAME_MAX + 1], int64_t *when)
{
    struct wb_rename_hop hops[2] = {{.dir = *dir, .when = *when}};
    int r;

    memcpy(hops[0].name, name, WB_NAME_MAX + 1);
    r = wb_rename_chain_follow(history, object, WB_FILE_UNDO, until, hops);
    *dir = hops[0].dir;
    *when = hops[0].when;
    memcpy(name, hops[0].name, WB_NAME_MAX + 1);
    return r > 0 ? WB_ABSENT : r;
}
