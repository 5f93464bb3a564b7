/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Selects the cached logs that have to be synced. A thread that appends holds the log, so a log with new records since
 * the last check is in use, or was released after it: only these are examined, since every fsync calls this.
 */
#include "store/cache/logs_parts.h"

#include <errno.h>
#include <glib.h>

bool wb_log_cache_begin_round(struct wb_log_cache *cache)
{
    uint64_t wanted;
    bool mine = false;

    pthread_mutex_lock(&cache->lock);
    wanted = cache->begun + 1;
    while (cache->begun > cache->ended && cache->ended < wanted)
        pthread_cond_wait(&cache->round, &cache->lock);
    if (cache->ended < wanted) {
        cache->begun++;
        mine = true;
    }
    pthread_mutex_unlock(&cache->lock);
    return mine;
}

void wb_log_cache_end_round(struct wb_log_cache *cache)
{
    pthread_mutex_lock(&cache->lock);
    cache->ended++;
    pthread_cond_broadcast(&cache->round);
    pthread_mutex_unlock(&cache->lock);
}

bool wb_closed_logs_reserve(struct wb_closed_logs *logs)
{
    size_t room = logs->room > 0 ? 2 * logs->room : 256;
    struct wb_closed_log *items;

    if (logs->count < logs->room)
        return true;
    items = realloc(logs->items, room * sizeof(*items));
    if (!items)
        return false;
    logs->items = items;
    logs->room = room;
    return true;
}

struct wb_closed_logs wb_log_cache_take_closed(struct wb_log_cache *cache)
{
    struct wb_closed_logs taken;

    pthread_mutex_lock(&cache->lock);
    taken = cache->closed;
    cache->closed = (struct wb_closed_logs){0};
    pthread_mutex_unlock(&cache->lock);
    return taken;
}

/* Takes the log if it is dirty; it is in use from then on. */
static void take(struct wb_log_cache *cache, struct log_entry *entry, struct wb_log **logs)
{
    if (entry->opening || entry->detached || !entry->log ||
        !__atomic_exchange_n(&entry->log->dirty, false, __ATOMIC_RELAXED))
        return;
    if (entry->users == 0) {
        entry->syncing = true;
        cache->syncing++;
    }
    wb_log_entry_use(cache, entry);
    entry->log->taken = *logs;
    *logs = entry->log;
}

struct wb_log *wb_log_cache_take_dirty(struct wb_log_cache *cache)
{
    struct log_entry *entry, *next;
    struct wb_log *logs = NULL;

    pthread_mutex_lock(&cache->lock);
    for (entry = cache->used.newest; entry; entry = entry->older)
        take(cache, entry, &logs);
    for (entry = cache->idle.newest; entry && entry->released > cache->looked; entry = next) {
        next = entry->older;
        take(cache, entry, &logs);
    }
    cache->looked = cache->releases;
    pthread_mutex_unlock(&cache->lock);
    return logs;
}

void wb_log_cache_put_dirty(struct wb_log_cache *cache, struct wb_log *logs)
{
    struct log_entry *gone = NULL;

    pthread_mutex_lock(&cache->lock);
    /* The most recently used ones were taken first, and are the last ones here. */
    for (struct wb_log *log = logs, *following; log; log = following) {
        struct log_entry *entry = log->cached, *freed;

        following = log->taken;
        if (entry->syncing)
            cache->syncing--;
        entry->syncing = false;
        freed = wb_log_entry_release(cache, entry);
        while (freed) {
            struct log_entry *next = freed->next;

            freed->next = gone;
            gone = freed;
            freed = next;
        }
    }
    pthread_mutex_unlock(&cache->lock);
    wb_log_entries_free(gone);
}

int wb_log_cache_take_overwritten(struct wb_log_cache *cache, struct wb_closed_logs *ret)
{
    int r = 0;

    pthread_mutex_lock(&cache->lock);
    *ret = cache->overwritten;
    cache->overwritten = (struct wb_closed_logs){0};
    for (unsigned i = 0; i < BUCKETS && r == 0; i++) {
        for (struct log_entry *entry = cache->buckets[i]; entry && r == 0; entry = entry->next) {
            if (entry->opening || !entry->log || !__atomic_load_n(&entry->log->overwrites, __ATOMIC_RELAXED))
                continue;
            if (!wb_closed_logs_reserve(ret))
                r = -ENOMEM;
            else if (__atomic_exchange_n(&entry->log->overwrites, false, __ATOMIC_RELAXED))
                wb_closed_logs_add(ret, entry->object, entry->file);
        }
    }
    pthread_mutex_unlock(&cache->lock);
    return r;
}

/* Collects a log with changes for the manifest; it is in use from then on. */
static void collect(struct wb_log_cache *cache, struct log_entry *entry, struct log_entry **list, size_t *count)
{
    if (entry->opening || entry->detached || !entry->log ||
        !__atomic_exchange_n(&entry->log->unlisted, false, __ATOMIC_RELAXED))
        return;
    wb_log_entry_use(cache, entry);
    list[(*count)++] = entry;
}

static void list_entry(struct wb_log_cache *cache, struct log_entry *entry, wb_log_lister *lister, void *data)
{
    struct wb_manifest_entry listed = {.object = entry->object, .file = entry->file};
    struct wb_log *log = entry->log;
    struct log_entry *gone;

    pthread_mutex_lock(&log->lock);
    listed.end = log->tail;
    listed.when = log->last_when;
    log->listed = MAX(log->listed, log->tail);
    pthread_mutex_unlock(&log->lock);
    pthread_mutex_lock(&cache->lock);
    /* A dropped log is about to be removed: its entry is withdrawn already, or will be after this. */
    if (!entry->detached && listed.end > 0 && !lister(data, &listed))
        __atomic_store_n(&log->unlisted, true, __ATOMIC_RELAXED);
    gone = wb_log_entry_release(cache, entry);
    pthread_mutex_unlock(&cache->lock);
    wb_log_entries_free(gone);
}

void wb_log_cache_list(struct wb_log_cache *cache, wb_log_lister *lister, void *data)
{
    struct log_entry **list, *next;
    size_t count = 0;

    pthread_mutex_lock(&cache->lock);
    list = calloc(cache->used.count + cache->idle.count + 1, sizeof(struct log_entry *));
    for (struct log_entry *entry = list ? cache->used.newest : NULL; entry; entry = next) {
        next = entry->older;
        collect(cache, entry, list, &count);
    }
    for (struct log_entry *entry = list ? cache->idle.newest : NULL; entry && entry->released > cache->listed;
         entry = next) {
        next = entry->older;
        collect(cache, entry, list, &count);
    }
    if (list)
        cache->listed = cache->releases;
    pthread_mutex_unlock(&cache->lock);
    /* The most recently used ones came first, and are the last ones here. */
    for (size_t i = count; i-- > 0;)
        list_entry(cache, list[i], lister, data);
    free(list);
}
