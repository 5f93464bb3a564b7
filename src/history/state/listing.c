/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * The entries of a directory at T: its present entries, with the before-states of its names put back from the newest
 * record to the oldest one after T. Memory is proportional to the largest number of entries on the way, however long
 * the catalog.
 */
#include "history/internal.h"

#include "base/cleanup.h"
#include "base/dir.h"
#include "base/io.h"
#include <errno.h>
#include <fcntl.h>
#include <string.h>

bool wb_listing_hides(const struct wb_revision *dir, const char *name)
{
    return !dir->parent && (strcmp(name, WB_STORE_NAME) == 0 || strcmp(name, WB_STAGING_NAME) == 0);
}

/*
 * Listings that needed a long walk, kept for later requests.
 *
 * A listing of D at T may be kept only if the names of D at T can no longer change. `when` grows within each log, so
 * that is certain once D's catalog has a record newer than T, and as long as the catalog is the same file (vrm replaces
 * it). All other listings are cheap to compute again.
 */

#define LISTINGS_MAX 32
#define ENTRIES_MAX (128u * 1024)
#define RECORDS_MIN 256
#define ASKED_MAX 16

struct wb_listing_cache {
    pthread_mutex_t lock;
    GQueue *listings; /* most recently used first */
    size_t entries;
    struct wb_object too_large; /* the last one that was too large to keep */
    struct {
        struct wb_object dir;
        int64_t when;
    } asked[ASKED_MAX];         /* recent requests for one name each */
    unsigned next_asked;
};

struct wb_listing_cache *wb_listing_cache_new(void)
{
    struct wb_listing_cache *cache = g_new0(struct wb_listing_cache, 1);

    pthread_mutex_init(&cache->lock, NULL);
    cache->listings = g_queue_new();
    return cache;
}

static void drop(struct wb_listing_cache *cache, GList *link)
{
    struct wb_listing *listing = link->data;

    cache->entries -= listing->entries->len;
    g_queue_delete_link(cache->listings, link);
    wb_listing_unref(listing);
}

struct wb_listing_cache *wb_listing_cache_free(struct wb_listing_cache *cache)
{
    if (!cache)
        return NULL;
    while (cache->listings->head)
        drop(cache, cache->listings->head);
    g_queue_free(cache->listings);
    pthread_mutex_destroy(&cache->lock);
    g_free(cache);
    return NULL;
}

static GList *find(struct wb_listing_cache *cache, struct wb_object dir, int64_t when)
{
    for (GList *link = cache->listings->head; link; link = link->next) {
        struct wb_listing *listing = link->data;

        if (listing->when == when && wb_object_equal(listing->dir, dir))
            return link;
    }
    return NULL;
}

struct wb_listing *wb_listing_cached(struct wb_history *history, const struct wb_revision *dir)
{
    struct wb_listing_cache *cache = history->listings;
    struct wb_listing *listing = NULL;
    struct wb_object log;
    GList *link;

    pthread_mutex_lock(&cache->lock);
    link = find(cache, dir->object, dir->when);
    if (link) {
        listing = link->data;
        g_queue_unlink(cache->listings, link);
        g_queue_push_head_link(cache->listings, link);
        if (wb_catalog_identity(history, dir->object, &log) < 0 || !wb_object_equal(log, listing->log)) {
            drop(cache, link);
            listing = NULL;
        } else {
            atomic_fetch_add(&listing->references, 1);
        }
    }
    pthread_mutex_unlock(&cache->lock);
    return listing;
}

static void listing_keep(struct wb_history *history, struct wb_listing *listing)
{
    struct wb_listing_cache *cache = history->listings;

    if (listing->records < RECORDS_MIN)
        return;
    pthread_mutex_lock(&cache->lock);
    if (listing->entries->len > ENTRIES_MAX)
        cache->too_large = listing->dir;
    else if (!find(cache, listing->dir, listing->when)) {
        atomic_fetch_add(&listing->references, 1);
        g_queue_push_head(cache->listings, listing);
        cache->entries += listing->entries->len;
    }
    while (cache->listings->length > LISTINGS_MAX || cache->entries > ENTRIES_MAX)
        drop(cache, cache->listings->tail);
    pthread_mutex_unlock(&cache->lock);
}

/* Whether a name in the directory at that moment was requested before; remembers this request. With the lock held. */
static bool was_asked(struct wb_listing_cache *cache, const struct wb_revision *dir)
{
    for (unsigned i = 0; i < ASKED_MAX; i++)
        if (cache->asked[i].when == dir->when && wb_object_equal(cache->asked[i].dir, dir->object))
            return true;
    cache->asked[cache->next_asked].dir = dir->object;
    cache->asked[cache->next_asked].when = dir->when;
    cache->next_asked = (cache->next_asked + 1) % ASKED_MAX;
    return false;
}

bool wb_listing_is_worthwhile(struct wb_history *history, const struct wb_revision *dir, unsigned records)
{
    struct wb_listing_cache *cache = history->listings;
    bool worthwhile;

    if (records < 2 * RECORDS_MIN)
        return false;
    pthread_mutex_lock(&cache->lock);
    /* A caller that requests one name at many different moments needs no listing of each. */
    worthwhile = !wb_object_equal(cache->too_large, dir->object) && was_asked(cache, dir);
    pthread_mutex_unlock(&cache->lock);
    return worthwhile;
}

static void entry_free(void *data)
{
    struct wb_listing_entry *entry = data;

    g_free(entry->name);
    g_free(entry);
}

/* ---- the present ----------------------------------------------------------------------------- */

static int add_present(struct wb_history *history, struct wb_revision *dir, int dir_fd, const char *name,
                       GHashTable *entries)
{
    struct wb_listing_entry *entry;
    struct wb_object object;
    struct wb_attrs attrs;
    int r;

    if (wb_listing_hides(dir, name))
        return 0;
    r = wb_object_stat(history->store, dir_fd, name, &object, &attrs, NULL);
    /* ENOENT: removed meanwhile; its record says so. EXDEV: on another device, so not part of this tree. */
    if (r == -ENOENT || r == -EXDEV)
        return 0;
    if (r < 0)
        return r;
    entry = g_new0(struct wb_listing_entry, 1);
    *entry = (struct wb_listing_entry){.name = g_strdup(name), .object = object, .mode = attrs.mode,
                                        .ctime = attrs.ctime};
    g_hash_table_replace(entries, entry->name, entry);
    return 0;
}

static int read_present(struct wb_history *history, struct wb_revision *dir, GHashTable *entries)
{
    _cleanup_closedir_ DIR *stream = NULL;
    _cleanup_close_ int fd = -1;
    struct dirent *found;
    int r;

    r = wb_resolve(history, dir, &fd, NULL);
    if (r < 0 || fd < 0) /* removed: it was empty */
        return r < 0 ? r : 0;
    stream = wb_opendir_at(fd, ".");
    if (!stream)
        return -errno;
    r = 0; /* it was found in either place */
    while (wb_next_entry(stream, &found, &r))
        r = add_present(history, dir, dirfd(stream), found->d_name, entries);
    return r;
}

/* ---- the records after T --------------------------------------------------------------------- */

static void put_back(GHashTable *entries, const struct wb_slot *slot)
{
    struct wb_listing_entry *entry;
    char name[WB_NAME_MAX + 1];

    memcpy(name, slot->name, slot->name_length);
    name[slot->name_length] = '\0';
    if (!slot->present) {
        g_hash_table_remove(entries, name);
        return;
    }
    entry = g_hash_table_lookup(entries, name);
    if (!entry) {
        entry = g_new0(struct wb_listing_entry, 1);
        entry->name = g_strdup(name);
        g_hash_table_insert(entries, entry->name, entry);
    }
    entry->object = slot->object;
    entry->mode = slot->attrs.mode;
    entry->ctime = slot->attrs.ctime;
}

static gboolean is_doubtful(void *key, void *value, void *data)
{
    return ((struct wb_listing_entry *)value)->doubtful;
}

/* Entries whose inode was born after T count only if a record up to T bound them (see revision.c). */
static int settle_doubts(struct wb_log_scan *scan, GHashTable *entries)
{
    const struct wb_record *record;
    struct wb_listing_entry *entry;
    unsigned doubts = 0;
    GHashTableIter iter;
    char name[WB_NAME_MAX + 1];
    void *value;
    int r = WB_END;

    g_hash_table_iter_init(&iter, entries);
    while (g_hash_table_iter_next(&iter, NULL, &value)) {
        entry = value;
        entry->doubtful = wb_log_scan_doubts(scan, entry->object);
        doubts += entry->doubtful;
    }
    scan->when -= WB_BIRTH_SLACK;
    scan->doubts = true;
    while (doubts > 0 && (r = wb_log_scan_next(scan, &record)) == 0) {
        for (uint32_t i = 0; record->type == WB_REC_NAME && i < record->name.count; i++) {
            const struct wb_slot *slot = &record->name.slots[i];

            memcpy(name, slot->name, slot->name_length);
            name[slot->name_length] = '\0';
            entry = g_hash_table_lookup(entries, name);
            if (!entry || !entry->doubtful)
                continue;
            entry->doubtful = false;
            doubts--;
            /* The object had lost the name by then, and the present one was bound while nothing was recorded. */
            if (!wb_slot_gains(record, slot))
                g_hash_table_remove(entries, name);
        }
    }
    if (doubts > 0)
        g_hash_table_foreach_remove(entries, is_doubtful, NULL);
    return r < 0 ? r : 0;
}

static int replay(struct wb_history *history, struct wb_listing *listing, GHashTable *entries)
{
    const struct wb_record *record;
    struct wb_log_scan scan;
    int r;

    r = wb_log_scan_open(&scan, history, listing->dir, WB_FILE_CATALOG, listing->when);
    if (r < 0)
        return r;
    if (scan.source.fd >= 0)
        r = wb_object_stat(NULL, scan.source.fd, NULL, &listing->log, NULL, NULL);
    while (r == 0 && (r = wb_log_scan_next(&scan, &record)) == 0) {
        listing->records++;
        for (uint32_t i = 0; record->type == WB_REC_NAME && i < record->name.count; i++)
            put_back(entries, &record->name.slots[i]);
    }
    if (r == WB_END)
        r = settle_doubts(&scan, entries);
    wb_log_scan_close(&scan);
    return r;
}

/* ---- the result ------------------------------------------------------------------------------ */

static void entry_clear(void *data)
{
    g_free(((struct wb_listing_entry *)data)->name);
}

static int compare_entries(const void *a, const void *b)
{
    const struct wb_listing_entry *x = a, *y = b;

    return strcmp(x->name, y->name);
}

static void take_entries(struct wb_listing *listing, GHashTable *entries)
{
    GHashTableIter iter;
    void *value;

    listing->entries = g_array_sized_new(FALSE, FALSE, sizeof(struct wb_listing_entry), g_hash_table_size(entries));
    g_array_set_clear_func(listing->entries, entry_clear);
    g_hash_table_iter_init(&iter, entries);
    while (g_hash_table_iter_next(&iter, NULL, &value)) {
        g_array_append_vals(listing->entries, value, 1);
        listing->names += strlen(((struct wb_listing_entry *)value)->name) + 1;
        ((struct wb_listing_entry *)value)->name = NULL;
        g_hash_table_iter_steal(&iter);
        g_free(value);
    }
    g_array_sort(listing->entries, compare_entries);
}

int wb_listing_open(struct wb_history *history, struct wb_revision *dir, struct wb_listing **ret)
{
    g_autoptr(GHashTable) entries = g_hash_table_new_full(g_str_hash, g_str_equal, NULL, entry_free);
    struct wb_listing *listing;
    int r;

    if (dir->type != S_IFDIR)
        return -ENOTDIR;
    r = (int)wb_history_end(history, dir->when, 0);
    if (r < 0)
        return r;
    listing = wb_listing_cached(history, dir);
    if (listing) {
        *ret = listing;
        return 0;
    }
    listing = g_new0(struct wb_listing, 1);
    listing->references = 1;
    listing->dir = dir->object;
    listing->when = dir->when;
    pthread_mutex_init(&listing->lock, NULL);
    r = read_present(history, dir, entries);
    if (r == 0 && dir->when != WB_WHEN_PRESENT)
        r = replay(history, listing, entries);
    take_entries(listing, entries);
    r = (int)wb_history_end(history, dir->when, r);
    if (r < 0) {
        wb_listing_unref(listing);
        return r;
    }
    listing_keep(history, listing);
    *ret = listing;
    return 0;
}

struct wb_listing *wb_listing_unref(struct wb_listing *listing)
{
    if (listing && atomic_fetch_sub(&listing->references, 1) == 1) {
        g_array_unref(listing->entries);
        g_free(listing->hints);
        pthread_mutex_destroy(&listing->lock);
        g_free(listing);
    }
    return NULL;
}

size_t wb_listing_size(const struct wb_listing *listing)
{
    /* malloc(3) adds a word to each name, and rounds up. */
    size_t each = sizeof(struct wb_listing_entry) + 2 * sizeof(size_t);

    return sizeof(*listing) + listing->entries->len * each + listing->names;
}

ssize_t wb_listing_find(const struct wb_listing *listing, const char *name)
{
    struct wb_listing_entry key = {.name = (char *)name};
    guint index;

    return g_array_binary_search(listing->entries, &key, compare_entries, &index) ? (ssize_t)index : -1;
}
