/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * The cache of open logs.
 *
 * There is at most one struct wb_log for a file at any time, since it alone knows the tail. The
 * mutex is held for looking up only: opening, closing and syncing happen outside of it, and who
 * wants a log that is just being opened waits for that. Logs nobody uses are kept, the most
 * recently used up to a limit, so descriptors do not grow with the number of files.
 *
 * A log that was closed with records not yet synced need not be remembered: one that is opened
 * again is taken for dirty, and syncing a clean file costs next to nothing.
 */
#include "store/ahead.h"
#include "store/parts.h"
#include "store/timeline.h"

#include "base/cleanup.h"
#include "base/io.h"
#include "wayback/when.h"
#include <errno.h>
#include <fcntl.h>
#include <glib.h>
#include <sys/stat.h>
#include <unistd.h>

#define BUCKETS 512
#define HINTS 4096

struct entry {
    struct entry *next; /* in its bucket */
    struct entry *older, *newer; /* among the idle */
    struct wb_object object;
    enum wb_object_file file;
    struct wb_log *log;
    unsigned users;
    int error;              /* of opening it */
    bool opening, detached; /* detached: no longer found; the last user lets it go */
};

/* What is known of a log's existence. Only this process makes and removes logs, so it stays true. */
struct hint {
    struct wb_object object;
    uint8_t file;
    bool known, exists;
};

struct wb_log_cache {
    pthread_mutex_t lock;
    pthread_cond_t opened;
    struct entry *buckets[BUCKETS];
    struct entry *oldest, *newest;
    unsigned idle, limit;
    GArray *closed; /* struct wb_closed_log: closed while dirty */
    GArray *overwritten; /* objects whose logs were closed while `overwrites` */
    uint64_t changes; /* logs made or dropped: what was looked up before may be wrong now */
    struct hint hints[HINTS];
};

static size_t hash(struct wb_object object, enum wb_object_file file)
{
    uint64_t mixed = (object.ino ^ (uint64_t)object.birth * 31) * 2 + (file == WB_FILE_CATALOG);

    return (size_t)(mixed * UINT64_C(0x9e3779b97f4a7c15) >> 40);
}

struct wb_log_cache *wb_log_cache_new(unsigned limit)
{
    struct wb_log_cache *cache = g_try_new0(struct wb_log_cache, 1);

    if (cache) {
        pthread_mutex_init(&cache->lock, NULL);
        pthread_cond_init(&cache->opened, NULL);
        cache->limit = limit;
        cache->closed = g_array_new(FALSE, FALSE, sizeof(struct wb_closed_log));
        cache->overwritten = g_array_new(FALSE, FALSE, sizeof(struct wb_object));
    }
    return cache;
}

static void entry_free(struct entry *entry)
{
    wb_log_free(entry->log);
    g_free(entry);
}

struct wb_log_cache *wb_log_cache_free(struct wb_log_cache *cache)
{
    struct entry *entry, *next;

    if (!cache)
        return NULL;
    for (unsigned i = 0; i < BUCKETS; i++) {
        for (entry = cache->buckets[i]; entry; entry = next) {
            next = entry->next;
            entry_free(entry);
        }
    }
    g_array_unref(cache->closed);
    g_array_unref(cache->overwritten);
    pthread_cond_destroy(&cache->opened);
    pthread_mutex_destroy(&cache->lock);
    g_free(cache);
    return NULL;
}

/* ---- what is looked up under the mutex ------------------------------------------------------- */

static struct hint *hint_find(struct wb_log_cache *cache, struct wb_object object,
                              enum wb_object_file file)
{
    struct hint *hint = &cache->hints[hash(object, file) % HINTS];

    return hint->known && hint->file == file && wb_object_equal(hint->object, object) ? hint : NULL;
}

static void hint_set(struct wb_log_cache *cache, struct wb_object object, enum wb_object_file file,
                     bool exists)
{
    cache->hints[hash(object, file) % HINTS] = (struct hint){object, (uint8_t)file, true, exists};
}

static struct entry *entry_find(struct wb_log_cache *cache, struct wb_object object,
                                enum wb_object_file file)
{
    struct entry *entry = cache->buckets[hash(object, file) % BUCKETS];

    while (entry && !(entry->file == file && wb_object_equal(entry->object, object)))
        entry = entry->next;
    return entry;
}

static void entry_detach(struct wb_log_cache *cache, struct entry *entry)
{
    struct entry **link = &cache->buckets[hash(entry->object, entry->file) % BUCKETS];

    while (*link != entry)
        link = &(*link)->next;
    *link = entry->next;
    entry->next = NULL;
    entry->detached = true;
}

static void idle_remove(struct wb_log_cache *cache, struct entry *entry)
{
    *(entry->older ? &entry->older->newer : &cache->oldest) = entry->newer;
    *(entry->newer ? &entry->newer->older : &cache->newest) = entry->older;
    entry->older = entry->newer = NULL;
    cache->idle--;
}

static void idle_add(struct wb_log_cache *cache, struct entry *entry)
{
    entry->older = cache->newest;
    *(cache->newest ? &cache->newest->newer : &cache->oldest) = entry;
    cache->newest = entry;
    cache->idle++;
}

static void note_closed(struct wb_log_cache *cache, const struct entry *entry)
{
    struct wb_closed_log closed = {entry->object, entry->file};

    if (entry->log->dirty)
        g_array_append_val(cache->closed, closed);
    if (entry->log->overwrites)
        g_array_append_val(cache->overwritten, closed.object);
}

/* One user less. Returns what is to be freed outside of the mutex, linked by `next`. */
static struct entry *entry_release(struct wb_log_cache *cache, struct entry *entry)
{
    struct entry *gone = NULL;

    if (--entry->users > 0)
        return NULL;
    if (entry->detached)
        return entry;
    idle_add(cache, entry);
    while (cache->idle > cache->limit) {
        struct entry *oldest = cache->oldest;

        idle_remove(cache, oldest);
        entry_detach(cache, oldest);
        note_closed(cache, oldest);
        oldest->next = gone;
        gone = oldest;
    }
    return gone;
}

static void free_all(struct entry *gone)
{
    while (gone) {
        struct entry *next = gone->next;

        entry_free(gone);
        gone = next;
    }
}

/* ---- opening --------------------------------------------------------------------------------- */

/* Uses an entry found: 0, or what opening it ended with, then the entry is not to be used. */
static int entry_use(struct wb_log_cache *cache, struct entry *entry)
{
    int error;

    if (!entry->opening && entry->users == 0)
        idle_remove(cache, entry);
    entry->users++;
    while (entry->opening)
        pthread_cond_wait(&cache->opened, &cache->lock);
    error = entry->error;
    if (error < 0)
        free_all(entry_release(cache, entry));
    return error;
}

/* Puts an entry into the cache and opens its log, without the mutex meanwhile. */
static int entry_open(struct wb_store *store, struct entry *entry, bool create)
{
    struct wb_log_cache *cache = store->logs;
    struct entry **bucket = &cache->buckets[hash(entry->object, entry->file) % BUCKETS];
    char path[WB_OBJECT_PATH_MAX];
    int r;

    entry->users = 1;
    entry->opening = true;
    entry->next = *bucket;
    *bucket = entry;
    pthread_mutex_unlock(&cache->lock);

    wb_object_path(entry->object, entry->file, path);
    r = wb_log_open(&entry->log, store->dir_fd, path, create);
    if (r == 0) {
        entry->log->cached = entry;
        /* Records of the past are never younger than those to come. */
        wb_inflight_raise(store->inflight, entry->log->last_when);
        r = wb_log_look_for_lost_tail(store, entry->log, entry->file);
    }

    pthread_mutex_lock(&cache->lock);
    entry->opening = false;
    entry->error = r;
    if (r == 0 || r == -ENOENT) {
        cache->changes++;
        hint_set(cache, entry->object, entry->file, r == 0);
    }
    pthread_cond_broadcast(&cache->opened);
    if (r < 0) {
        if (!entry->detached)
            entry_detach(cache, entry);
        free_all(entry_release(cache, entry));
    }
    return r;
}

int wb_store_get_log(struct wb_store *store, struct wb_object object, enum wb_object_file file, bool create,
                     struct wb_log **ret)
{
    struct wb_log_cache *cache = store->logs;
    struct entry *entry;
    struct hint *hint;
    int r;

    if (!cache)
        return -EROFS;
    pthread_mutex_lock(&cache->lock);
    /* Whoever waited for an opening that was not allowed to create tries again. */
    while ((entry = entry_find(cache, object, file))) {
        r = entry_use(cache, entry);
        if (r != -ENOENT || !create)
            goto finish;
    }
    hint = hint_find(cache, object, file);
    r = -ENOENT;
    if (!create && hint && !hint->exists)
        goto finish;
    entry = g_try_new0(struct entry, 1);
    r = -ENOMEM;
    if (!entry)
        goto finish;
    entry->object = object;
    entry->file = file;
    r = entry_open(store, entry, create);
finish:
    if (r == 0)
        *ret = entry->log;
    pthread_mutex_unlock(&cache->lock);
    return r;
}

void wb_store_put_log(struct wb_store *store, struct wb_log *log)
{
    struct wb_log_cache *cache = store->logs;
    struct entry *gone;

    if (!log)
        return;
    pthread_mutex_lock(&cache->lock);
    gone = entry_release(cache, log->cached);
    pthread_mutex_unlock(&cache->lock);
    free_all(gone);
}

int wb_store_has_log(struct wb_store *store, struct wb_object object, enum wb_object_file file)
{
    struct wb_log_cache *cache = store->logs;
    char path[WB_OBJECT_PATH_MAX];
    uint64_t changes = 0;
    struct hint *hint;
    int known = -1, r;

    if (cache) {
        pthread_mutex_lock(&cache->lock);
        hint = hint_find(cache, object, file);
        if (hint)
            known = hint->exists;
        changes = cache->changes;
        pthread_mutex_unlock(&cache->lock);
        if (known >= 0)
            return known;
    }
    wb_object_path(object, file, path);
    r = faccessat(store->dir_fd, path, F_OK, AT_SYMLINK_NOFOLLOW) == 0 ? 1 : -errno;
    if (r == -ENOENT)
        r = 0;
    if (cache && r >= 0) {
        pthread_mutex_lock(&cache->lock);
        if (changes == cache->changes)
            hint_set(cache, object, file, r);
        pthread_mutex_unlock(&cache->lock);
    }
    return r;
}

void wb_store_drop_log(struct wb_store *store, struct wb_object object, enum wb_object_file file)
{
    struct wb_log_cache *cache = store->logs;
    struct entry *entry;
    struct hint *hint;

    if (!cache)
        return;
    wb_timeline_drop(store, object, file);
    if (file == WB_FILE_UNDO)
        wb_ahead_release(store, object);
    pthread_mutex_lock(&cache->lock);
    cache->changes++;
    hint = hint_find(cache, object, file);
    if (hint)
        hint->known = false;
    entry = entry_find(cache, object, file);
    if (entry) {
        entry_detach(cache, entry);
        if (entry->users > 0)
            entry = NULL;
        else
            idle_remove(cache, entry);
    }
    pthread_mutex_unlock(&cache->lock);
    if (entry)
        entry_free(entry);
}

/* ---- syncing --------------------------------------------------------------------------------- */

GArray *wb_log_cache_take_closed(struct wb_log_cache *cache)
{
    GArray *taken;

    pthread_mutex_lock(&cache->lock);
    taken = cache->closed;
    cache->closed = g_array_new(FALSE, FALSE, sizeof(struct wb_closed_log));
    pthread_mutex_unlock(&cache->lock);
    return taken;
}

unsigned wb_log_cache_take_dirty(struct wb_log_cache *cache, struct wb_log *logs[WB_LOGS_DIRTY_MAX])
{
    unsigned count = 0;

    pthread_mutex_lock(&cache->lock);
    for (unsigned i = 0; i < BUCKETS; i++) {
        for (struct entry *entry = cache->buckets[i]; entry && count < WB_LOGS_DIRTY_MAX; entry = entry->next) {
            if (entry->opening || !entry->log || !__atomic_exchange_n(&entry->log->dirty, false, __ATOMIC_RELAXED))
                continue;
            if (entry->users++ == 0)
                idle_remove(cache, entry);
            logs[count++] = entry->log;
        }
    }
    pthread_mutex_unlock(&cache->lock);
    return count;
}

GArray *wb_log_cache_take_overwritten(struct wb_log_cache *cache)
{
    GArray *taken;

    pthread_mutex_lock(&cache->lock);
    taken = cache->overwritten;
    cache->overwritten = g_array_new(FALSE, FALSE, sizeof(struct wb_object));
    for (unsigned i = 0; i < BUCKETS; i++)
        for (struct entry *entry = cache->buckets[i]; entry; entry = entry->next)
            if (!entry->opening && entry->log && __atomic_exchange_n(&entry->log->overwrites, false, __ATOMIC_RELAXED))
                g_array_append_val(taken, entry->object);
    pthread_mutex_unlock(&cache->lock);
    return taken;
}
