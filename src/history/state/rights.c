/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "history/state/rights.h"

#include "history/internal.h"
#include "wayback/error.h"
#include <errno.h>

/* So many moments are kept of one object in one log, and of so many objects. */
#define MOMENTS_MAX 1024
#define KEPT_MAX 512

struct wb_rights_cache {
    pthread_mutex_t lock;
    GHashTable *kept; /* struct wb_rights, by its place */
};

guint wb_rights_place_hash(const void *key)
{
    const struct wb_rights_place *place = key;

    return (guint)((place->log.ino * 31 + place->about.ino + place->file) * UINT64_C(0x9e3779b97f4a7c15) >> 32);
}

gboolean wb_rights_place_equal(const void *a, const void *b)
{
    const struct wb_rights_place *one = a, *two = b;

    return one->file == two->file && wb_object_equal(one->log, two->log) && wb_object_equal(one->about, two->about);
}

struct wb_rights *wb_rights_unref(struct wb_rights *rights)
{
    if (rights && atomic_fetch_sub(&rights->references, 1) == 1) {
        g_array_unref(rights->whens);
        g_free(rights);
    }
    return NULL;
}

static void unref(void *data)
{
    wb_rights_unref(data);
}

struct wb_rights_cache *wb_rights_cache_new(void)
{
    struct wb_rights_cache *cache = g_new0(struct wb_rights_cache, 1);

    pthread_mutex_init(&cache->lock, NULL);
    cache->kept = g_hash_table_new_full(wb_rights_place_hash, wb_rights_place_equal, NULL, unref);
    return cache;
}

struct wb_rights_cache *wb_rights_cache_free(struct wb_rights_cache *cache)
{
    if (cache) {
        g_hash_table_unref(cache->kept);
        pthread_mutex_destroy(&cache->lock);
        g_free(cache);
    }
    return NULL;
}

/* ---- records ------------------------------------------------------------------------------------ */

/* The attributes of `about` in a record, for a directory those of its own catalog; NULL: it has none. */
static const struct wb_attrs *attrs_of(const struct wb_record *record, const struct wb_rights_place *place)
{
    bool undo = place->file == WB_FILE_UNDO; /* has one object only */

    switch (record->type) {
    case WB_REC_NAME:
        if (wb_object_equal(place->log, place->about))
            return &record->name.dir;
        for (uint32_t i = 0; i < record->name.count; i++)
            if (record->name.slots[i].present && wb_object_equal(record->name.slots[i].object, place->about))
                return &record->name.slots[i].attrs;
        return NULL;
    case WB_REC_ATTR:
        return undo || wb_object_equal(record->attr.object, place->about) ? &record->attr.attrs : NULL;
    case WB_REC_XATTR:
        return undo || wb_object_equal(record->xattr.object, place->about) ? &record->xattr.attrs : NULL;
    case WB_REC_DATA:
        return &record->data.attrs;
    default:
        return NULL;
    }
}

static bool same_rights(const struct wb_attrs *a, const struct wb_attrs *b)
{
    return a->mode == b->mode && a->uid == b->uid && a->gid == b->gid;
}

/* An ACL, or a place, may have changed, whatever the attributes are. */
static bool is_moment(const struct wb_record *record, const struct wb_rights_place *place)
{
    return record->type == WB_REC_PLACE || (record->type == WB_REC_XATTR && attrs_of(record, place)) ||
           (record->type == WB_REC_NAME && !wb_object_equal(place->log, place->about) && attrs_of(record, place));
}

/*
 * Whether the next reading can end at this record. Nothing that is appended later alters the moments of older records:
 * it has attributes to compare those of older ones with, and its time is its own, not that of a later change.
 */
static bool is_end(const struct wb_record *record, const struct wb_attrs *attrs)
{
    return attrs && !(record->flags & (WB_RECORD_STAGE | WB_RECORD_COALESCED)) && record->change == record->when;
}

/* ---- reading ------------------------------------------------------------------------------------ */

static void add(struct wb_rights *rights, int64_t when)
{
    if (rights->whens->len < MOMENTS_MAX)
        g_array_append_val(rights->whens, when);
    else
        rights->cut = true;
}

/* The moments that are older than the record at which `known` ends. */
static void add_known(struct wb_rights *rights, const struct wb_rights *known)
{
    for (guint i = known->newer; i < known->whens->len; i++)
        add(rights, g_array_index(known->whens, int64_t, i));
    rights->cut |= known->cut;
}

/*
 * Between two records with the same rights nothing changed; if they differ, the older of them is
 * the change. The difference between the newest and the present counts as one, too.
 */
static int read_log(struct wb_log_cursor *source, const struct wb_rights *known, struct wb_rights *rights)
{
    const struct wb_record *record = &source->head;
    struct wb_attrs later = {0};
    int r = 0;

    while (!rights->cut && ((r = wb_log_cursor_peek(source)) == 0 || r == WB_DAMAGED)) {
        const struct wb_attrs *attrs;

        if (r == WB_DAMAGED) {
            later = (struct wb_attrs){0};
            continue;
        }
        attrs = attrs_of(record, &rights->place);
        if (is_moment(record, &rights->place) || (attrs && !same_rights(attrs, &later)))
            add(rights, record->when);
        if (attrs)
            later = *attrs;
        if (rights->change == 0 && is_end(record, attrs)) {
            rights->offset = record->offset;
            rights->change = record->change;
            rights->newer = rights->whens->len;
        }
        if (known && record->offset == known->offset && record->change == known->change && is_end(record, attrs)) {
            add_known(rights, known);
            break;
        }
        wb_log_cursor_take(source);
    }
    return MIN(r, 0);
}

static struct wb_rights *kept(struct wb_rights_cache *cache, const struct wb_rights_place *place)
{
    struct wb_rights *found;

    pthread_mutex_lock(&cache->lock);
    found = g_hash_table_lookup(cache->kept, place);
    if (found)
        atomic_fetch_add(&found->references, 1);
    pthread_mutex_unlock(&cache->lock);
    return found;
}

static void keep(struct wb_rights_cache *cache, struct wb_rights *rights)
{
    pthread_mutex_lock(&cache->lock);
    if (g_hash_table_size(cache->kept) >= KEPT_MAX)
        g_hash_table_remove_all(cache->kept);
    atomic_fetch_add(&rights->references, 1);
    g_hash_table_replace(cache->kept, &rights->place, rights);
    pthread_mutex_unlock(&cache->lock);
}

int wb_rights_of(struct wb_history *history, const struct wb_rights_place *place, struct wb_rights **ret)
{
    struct wb_rights *rights, *known;
    struct wb_log_cursor source;
    int r = wb_log_cursor_open(&source, history->store, place->log, place->file);

    if (r < 0)
        return r;
    rights = g_new0(struct wb_rights, 1);
    rights->references = 1;
    rights->place = *place;
    rights->whens = g_array_new(FALSE, FALSE, sizeof(int64_t));
    if (source.fd < 0 || wb_object_stat(NULL, source.fd, NULL, &rights->identity, NULL, NULL) < 0)
        rights->identity = WB_OBJECT_NONE;
    known = wb_object_is_none(rights->identity) ? NULL : kept(history->rights, place);
    if (known && !wb_object_equal(known->identity, rights->identity))
        known = wb_rights_unref(known);
    r = read_log(&source, known, rights);
    wb_log_cursor_close(&source);
    wb_rights_unref(known);
    if (r < 0) {
        wb_rights_unref(rights);
        return r;
    }
    if (rights->change != 0 && !wb_object_is_none(rights->identity))
        keep(history->rights, rights);
    *ret = rights;
    return 0;
}
