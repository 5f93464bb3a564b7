/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Reads a past directory: its listing, and revisions of its entries. A program that lists a directory usually requests
 * the attributes of its entries next, so one more walk over the catalog collects its records about all of them (struct
 * wb_hint).
 */
#include "history/internal.h"

#include "format/object_key.h"
#include <errno.h>

struct wb_past_dir {
    struct wb_history *history;
    struct wb_revision *revision;
    struct wb_listing *listing;
};

/* ---- hints ----------------------------------------------------------------------------------- */

static void take_hint(GHashTable *hints, struct wb_object object, int64_t when, const struct wb_attrs *attrs)
{
    struct wb_hint *hint = g_hash_table_lookup(hints, &object);

    if (hint) {
        hint->found = true;
        hint->when = when;
        hint->attrs = *attrs;
    }
}

/* From the newest record to the oldest: the last one found is the earliest after T. */
static int walk_hints(struct wb_log_scan *scan, GHashTable *hints, uint64_t *ret_seen)
{
    const struct wb_record *record;
    int r;

    *ret_seen = 0;
    while ((r = wb_log_scan_next(scan, &record)) == 0) {
        *ret_seen = MAX(*ret_seen, record->offset + record->total);
        if (record->type == WB_REC_ATTR)
            take_hint(hints, record->attr.object, record->when, &record->attr.attrs);
        for (uint32_t i = 0; record->type == WB_REC_NAME && i < record->name.count; i++)
            if (record->name.slots[i].present)
                take_hint(hints, record->name.slots[i].object, record->when, &record->name.slots[i].attrs);
    }
    return r;
}

/* Hints are separate from the entries: most listings are only read. Without memory there are no hints. */
static void find_hints(struct wb_history *history, struct wb_listing *listing)
{
    g_autoptr(GHashTable) hints = g_hash_table_new(wb_object_hash, wb_object_is_key);
    struct wb_object log = WB_OBJECT_NONE;
    struct wb_hint *all;
    struct wb_log_scan scan;
    uint64_t seen = 0;
    int r;

    all = listing->records > 0 ? g_try_new0(struct wb_hint, listing->entries->len) : NULL;
    if (!all)
        return;
    listing->hints = all;
    if (wb_log_scan_open(&scan, history, listing->dir, WB_FILE_CATALOG, listing->when) < 0)
        return;
    for (guint i = 0; i < listing->entries->len; i++) {
        struct wb_listing_entry *entry = &g_array_index(listing->entries, struct wb_listing_entry, i);

        /* Names of one object share the first one's hint. */
        if (!g_hash_table_contains(hints, &entry->object))
            g_hash_table_insert(hints, &entry->object, &all[i]);
    }
    r = scan.source.fd < 0 ? -ENOENT : wb_object_stat(NULL, scan.source.fd, NULL, &log, NULL, NULL);
    if (r == 0)
        r = walk_hints(&scan, hints, &seen);
    wb_log_scan_close(&scan);
    for (guint i = 0; i < listing->entries->len; i++) {
        struct wb_listing_entry *entry = &g_array_index(listing->entries, struct wb_listing_entry, i);
        struct wb_hint *hint = g_hash_table_lookup(hints, &entry->object);

        all[i] = *hint;
        all[i].valid = r == WB_END;
        all[i].log = log;
        all[i].seen = seen;
    }
}

int wb_listing_revision(struct wb_history *history, struct wb_listing *listing, struct wb_revision *dir, size_t index,
                        struct wb_revision **ret)
{
    const struct wb_listing_entry *entry;
    int r;

    if (index >= listing->entries->len)
        return -EINVAL;
    pthread_mutex_lock(&listing->lock);
    if (!listing->hinted)
        find_hints(history, listing);
    listing->hinted = true;
    pthread_mutex_unlock(&listing->lock);
    entry = &g_array_index(listing->entries, struct wb_listing_entry, index);
    r = wb_revision_below(dir, entry->name, entry->object, entry->mode, ret);
    if (r == 0 && listing->hints)
        (*ret)->hint = listing->hints[index];
    return r;
}

/* ---- past directories ------------------------------------------------------------------------ */

int wb_past_dir_open(struct wb_history *history, struct wb_revision *dir, struct wb_past_dir **ret)
{
    struct wb_past_dir *past;
    struct wb_listing *listing;
    int r = wb_listing_open(history, dir, &listing);

    if (r < 0)
        return r;
    past = g_new0(struct wb_past_dir, 1);
    *past = (struct wb_past_dir){history, wb_revision_ref(dir), listing};
    *ret = past;
    return 0;
}

struct wb_past_dir *wb_past_dir_free(struct wb_past_dir *dir)
{
    if (dir) {
        wb_listing_unref(dir->listing);
        wb_revision_unref(dir->revision);
    }
    g_free(dir);
    return NULL;
}

bool wb_past_dir_is_good(const struct wb_past_dir *dir)
{
    const struct wb_listing *listing = dir->listing;
    struct wb_object log;

    /* A caller that replayed no record may meet a catalog that was created since. */
    if (listing->records > 0 && (wb_catalog_identity(dir->history, listing->dir, &log) < 0 ||
                                 !wb_object_equal(log, listing->log)))
        return false;
    return wb_history_check_gaps(dir->history, listing->dir, WB_FILE_CATALOG, listing->when) == 0 &&
           wb_history_end(dir->history, listing->when, 0) == 0;
}

size_t wb_past_dir_size(const struct wb_past_dir *dir)
{
    return wb_listing_size(dir->listing);
}

static const struct wb_listing_entry *entry_at(const struct wb_past_dir *dir, size_t index)
{
    return &g_array_index(dir->listing->entries, struct wb_listing_entry, index);
}

size_t wb_past_dir_count(const struct wb_past_dir *dir)
{
    return dir->listing->entries->len;
}

const char *wb_past_dir_name(const struct wb_past_dir *dir, size_t index)
{
    return entry_at(dir, index)->name;
}

uint32_t wb_past_dir_type(const struct wb_past_dir *dir, size_t index)
{
    return entry_at(dir, index)->mode & S_IFMT;
}

int64_t wb_past_dir_ctime(const struct wb_past_dir *dir, size_t index)
{
    return entry_at(dir, index)->ctime;
}

struct wb_object wb_past_dir_object(const struct wb_past_dir *dir, size_t index)
{
    return entry_at(dir, index)->object;
}

int wb_past_dir_revision(struct wb_past_dir *dir, size_t index, struct wb_revision **ret)
{
    return wb_listing_revision(dir->history, dir->listing, dir->revision, index, ret);
}
