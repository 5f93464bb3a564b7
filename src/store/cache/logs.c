/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * The cache of open logs.
 *
 * There is at most one struct wb_log for a file at any time, since it alone knows the tail. The mutex is held for
 * look-ups only: opening, closing and syncing happen without it, and a thread that needs a log which another one is
 * opening waits for that. Unused logs are kept, the most recently used first, up to a limit, so descriptors do not grow
 * with the number of files. The limit is a share of the descriptors that the process may have: opening a log costs more
 * than appending to it.
 *
 * A log that was closed with unsynced records need not be remembered: a log that is opened again counts as dirty, and
 * syncing a clean file costs next to nothing.
 */
#include "store/cache/preclone.h"
#include "store/cache/logs_parts.h"
#include "store/tables/manifest.h"
#include "store/timeline/timeline.h"

#include "base/cleanup.h"
#include "base/io.h"
#include "wayback/when.h"
#include <errno.h>
#include <fcntl.h>
#include <glib.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

static size_t hash(struct wb_object object, enum wb_object_file file)
{
    uint64_t mixed = (object.ino ^ (uint64_t)object.birth * 31) * 2 + (file == WB_FILE_CATALOG);

    return (size_t)(mixed * UINT64_C(0x9e3779b97f4a7c15) >> 40);
}

unsigned wb_logs_limit(void)
{
    struct rlimit limit;

    if (getrlimit(RLIMIT_NOFILE, &limit) < 0 || limit.rlim_cur <= 1024)
        return WB_LOGS_OPEN;
    return (unsigned)MIN(WB_LOGS_OPEN + (limit.rlim_cur - 1024) / 4, WB_LOGS_OPEN_MAX);
}

struct wb_log_cache *wb_log_cache_new(unsigned limit)
{
    struct wb_log_cache *cache = g_try_new0(struct wb_log_cache, 1);

    if (cache) {
        pthread_mutex_init(&cache->lock, NULL);
        pthread_cond_init(&cache->opened, NULL);
        cache->limit = limit;
        pthread_cond_init(&cache->round, NULL);
    }
    return cache;
}

static void entry_free(struct log_entry *entry)
{
    wb_log_free(entry->log);
    g_free(entry);
}

struct wb_log_cache *wb_log_cache_free(struct wb_log_cache *cache)
{
    struct log_entry *entry, *next;

    if (!cache)
        return NULL;
    for (unsigned i = 0; i < BUCKETS; i++) {
        for (entry = cache->buckets[i]; entry; entry = next) {
            next = entry->next;
            entry_free(entry);
        }
    }
    wb_closed_logs_clear(&cache->closed);
    wb_closed_logs_clear(&cache->overwritten);
    pthread_cond_destroy(&cache->round);
    pthread_cond_destroy(&cache->opened);
    pthread_mutex_destroy(&cache->lock);
    g_free(cache);
    return NULL;
}

/* ---- look-ups under the mutex ---------------------------------------------------------------- */

static struct hint *hint_find(struct wb_log_cache *cache, struct wb_object object,
                              enum wb_object_file file)
{
    struct hint *hint = &cache->hints[hash(object, file) % HINTS];

    return hint->known && hint->file == file && wb_object_equal(hint->object, object) ? hint : NULL;
}

static void hint_set(struct wb_log_cache *cache, struct wb_object object, enum wb_object_file file,
                     bool exists)
{
    struct hint *known = hint_find(cache, object, file);

    cache->hints[hash(object, file) % HINTS] =
        (struct hint){object, (uint8_t)file, true, exists, known && known->checked && known->exists == exists};
}

static struct log_entry *entry_find(struct wb_log_cache *cache, struct wb_object object,
                                enum wb_object_file file)
{
    struct log_entry *entry = cache->buckets[hash(object, file) % BUCKETS];

    while (entry && !(entry->file == file && wb_object_equal(entry->object, object)))
        entry = entry->next;
    return entry;
}

static void entry_detach(struct wb_log_cache *cache, struct log_entry *entry)
{
    struct log_entry **link = &cache->buckets[hash(entry->object, entry->file) % BUCKETS];

    while (*link != entry)
        link = &(*link)->next;
    *link = entry->next;
    entry->next = NULL;
    entry->detached = true;
}

static void list_remove(struct log_list *list, struct log_entry *entry)
{
    *(entry->older ? &entry->older->newer : &list->oldest) = entry->newer;
    *(entry->newer ? &entry->newer->older : &list->newest) = entry->older;
    entry->older = entry->newer = NULL;
    list->count--;
}

static void list_add(struct log_list *list, struct log_entry *entry)
{
    entry->older = list->newest;
    *(list->newest ? &list->newest->newer : &list->oldest) = entry;
    list->newest = entry;
    list->count++;
}

void wb_log_entry_use(struct wb_log_cache *cache, struct log_entry *entry)
{
    if (entry->users++ > 0)
        return;
    list_remove(&cache->idle, entry);
    list_add(&cache->used, entry);
}

/* False: there is no memory to remember it, so the log has to remain open. */
static bool note_closed(struct wb_log_cache *cache, const struct log_entry *entry)
{
    if (!wb_closed_logs_reserve(&cache->closed) || !wb_closed_logs_reserve(&cache->overwritten))
        return false;
    wb_manifest_note(cache->manifest, entry->object, entry->file, entry->log);
    if (entry->log->dirty)
        wb_closed_logs_add(&cache->closed, entry->object, entry->file);
    if (entry->log->overwrites)
        wb_closed_logs_add(&cache->overwritten, entry->object, entry->file);
    return true;
}

struct log_entry *wb_log_entry_release(struct wb_log_cache *cache, struct log_entry *entry)
{
    struct log_entry *gone = NULL;

    if (--entry->users > 0)
        return NULL;
    list_remove(&cache->used, entry);
    if (entry->detached)
        return entry;
    entry->released = ++cache->releases;
    list_add(&cache->idle, entry);
    while (cache->idle.oldest && cache->idle.count + cache->syncing > cache->limit) {
        struct log_entry *oldest = cache->idle.oldest;

        if (!note_closed(cache, oldest))
            break;
        list_remove(&cache->idle, oldest);
        entry_detach(cache, oldest);
        oldest->next = gone;
        gone = oldest;
    }
    return gone;
}

void wb_log_entries_free(struct log_entry *gone)
{
    while (gone) {
        struct log_entry *next = gone->next;

        entry_free(gone);
        gone = next;
    }
}

/* ---- opening --------------------------------------------------------------------------------- */

/* Uses an entry that was found: 0, or the error of opening it; then the entry must not be used. */
static int entry_use(struct wb_log_cache *cache, struct log_entry *entry)
{
    int error;

    wb_log_entry_use(cache, entry);
    while (entry->opening)
        pthread_cond_wait(&cache->opened, &cache->lock);
    error = entry->error;
    if (error < 0)
        wb_log_entries_free(wb_log_entry_release(cache, entry));
    return error;
}

bool wb_log_cache_was_checked(struct wb_log_cache *cache, struct wb_object object, enum wb_object_file file)
{
    struct hint *hint;
    bool checked;

    pthread_mutex_lock(&cache->lock);
    hint = hint_find(cache, object, file);
    checked = hint && hint->checked;
    pthread_mutex_unlock(&cache->lock);
    return checked;
}

static void note_checked(struct wb_log_cache *cache, struct wb_object object, enum wb_object_file file, bool exists)
{
    hint_set(cache, object, file, exists);
    hint_find(cache, object, file)->checked = true;
}

void wb_log_cache_note_checked(struct wb_log_cache *cache, struct wb_object object, enum wb_object_file file,
                               bool exists)
{
    struct hint *hint;

    pthread_mutex_lock(&cache->lock);
    /* It may have been created or dropped since the look-up. */
    hint = hint_find(cache, object, file);
    if (hint && hint->exists == exists)
        hint->checked = true;
    pthread_mutex_unlock(&cache->lock);
}

/* Adds an entry to the cache and opens its log, without the mutex meanwhile. */
static int entry_open(struct wb_store *store, struct log_entry *entry, bool create)
{
    struct wb_log_cache *cache = store->logs;
    struct log_entry **bucket = &cache->buckets[hash(entry->object, entry->file) % BUCKETS];
    char path[WB_OBJECT_PATH_MAX];
    int r;

    entry->users = 1;
    list_add(&cache->used, entry);
    entry->opening = true;
    entry->next = *bucket;
    *bucket = entry;
    pthread_mutex_unlock(&cache->lock);

    wb_object_path(entry->object, entry->file, path);
    r = wb_log_open(&entry->log, store->dir_fd, path, create);
    if (r == 0) {
        entry->log->cached = entry;
        /* Later records must be newer than all that exist. */
        wb_inflight_raise(store->inflight, entry->log->last_when);
        r = wb_log_look_for_lost_tail(store, entry->log, entry->object, entry->file);
    }

    pthread_mutex_lock(&cache->lock);
    entry->opening = false;
    entry->error = r;
    if (r == 0 || r == -ENOENT) {
        cache->changes++;
        hint_set(cache, entry->object, entry->file, r == 0);
    }
    if (r == 0 && !entry->log->tail_is_lost && entry->log->listed_known)
        note_checked(cache, entry->object, entry->file, true);
    pthread_cond_broadcast(&cache->opened);
    if (r < 0) {
        if (!entry->detached)
            entry_detach(cache, entry);
        wb_log_entries_free(wb_log_entry_release(cache, entry));
    }
    return r;
}

int wb_store_get_log(struct wb_store *store, struct wb_object object, enum wb_object_file file, bool create,
                     struct wb_log **ret)
{
    struct wb_log_cache *cache = store->logs;
    struct log_entry *entry;
    struct hint *hint;
    int r;

    if (!cache)
        return -EROFS;
    pthread_mutex_lock(&cache->lock);
    /* A thread that waited for an opening that was not allowed to create the log tries again. */
    while ((entry = entry_find(cache, object, file))) {
        r = entry_use(cache, entry);
        if (r != -ENOENT || !create)
            goto finish;
    }
    hint = hint_find(cache, object, file);
    r = -ENOENT;
    if (!create && hint && !hint->exists)
        goto finish;
    entry = g_try_new0(struct log_entry, 1);
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
    struct log_entry *gone;

    if (!log)
        return;
    pthread_mutex_lock(&cache->lock);
    gone = wb_log_entry_release(cache, log->cached);
    pthread_mutex_unlock(&cache->lock);
    wb_log_entries_free(gone);
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

int wb_store_drop_log(struct wb_store *store, struct wb_object object, enum wb_object_file file)
{
    struct wb_log_cache *cache = store->logs;
    struct log_entry *entry;
    struct hint *hint;
    int r;

    if (!cache)
        return 0;
    r = wb_manifest_withdraw(store, object, file, false);
    if (r < 0)
        return r;
    wb_timeline_drop(store, object, file);
    if (file == WB_FILE_UNDO)
        wb_preclone_release(store, object);
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
            list_remove(&cache->idle, entry);
    }
    pthread_mutex_unlock(&cache->lock);
    if (entry)
        entry_free(entry);
    /* Again, because it may have been listed once more before it was dropped. */
    return wb_manifest_withdraw(store, object, file, true);
}
