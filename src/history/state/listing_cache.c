/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Listings that needed a long walk, kept for later requests.
 *
 * A listing of D at T may be kept only if the names of D at T can no longer change. `when` grows within each log, so
 * that is certain once D's catalog has a record newer than T, and as long as the catalog is the same file (vrm replaces
 * it). All other listings are cheap to compute again.
 */
#include "history/internal.h"

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

void wb_listing_keep(struct wb_history *history, struct wb_listing *listing)
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
