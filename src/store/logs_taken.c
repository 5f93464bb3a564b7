/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * What of the cache of logs has to get to the disk. Whoever appends holds the log, so what was appended to since the
 * last look is in use, or was released after it: only these are looked at, since every fsync comes here.
 */
#include "store/logs_parts.h"

GArray *wb_log_cache_take_closed(struct wb_log_cache *cache)
{
    GArray *fresh = g_array_new(FALSE, FALSE, sizeof(struct wb_closed_log)), *taken;

    pthread_mutex_lock(&cache->lock);
    taken = cache->closed;
    cache->closed = fresh;
    pthread_mutex_unlock(&cache->lock);
    return taken;
}

/* Whether it is dirty; it is in use then. */
static bool take(struct wb_log_cache *cache, struct log_entry *entry, GPtrArray *logs)
{
    if (entry->opening || entry->detached || !entry->log ||
        !__atomic_exchange_n(&entry->log->dirty, false, __ATOMIC_RELAXED))
        return false;
    if (entry->users == 0) {
        entry->syncing = true;
        cache->syncing++;
    }
    wb_log_entry_use(cache, entry);
    g_ptr_array_add(logs, entry->log);
    return true;
}

GPtrArray *wb_log_cache_take_dirty(struct wb_log_cache *cache)
{
    GPtrArray *logs = g_ptr_array_new();
    struct log_entry *entry, *next;

    pthread_mutex_lock(&cache->lock);
    for (entry = cache->used.newest; entry; entry = entry->older)
        take(cache, entry, logs);
    for (entry = cache->idle.newest; entry && entry->released > cache->looked; entry = next) {
        next = entry->older;
        take(cache, entry, logs);
    }
    cache->looked = cache->releases;
    pthread_mutex_unlock(&cache->lock);
    return logs;
}

void wb_log_cache_put_dirty(struct wb_log_cache *cache, GPtrArray *logs)
{
    struct log_entry *gone = NULL;

    pthread_mutex_lock(&cache->lock);
    /* Those that were used last were taken first. */
    for (guint i = logs->len; i > 0; i--) {
        struct wb_log *log = logs->pdata[i - 1];
        struct log_entry *entry = log->cached, *freed;

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
    g_ptr_array_unref(logs);
    wb_log_entries_free(gone);
}

GArray *wb_log_cache_take_overwritten(struct wb_log_cache *cache)
{
    GArray *fresh = g_array_new(FALSE, FALSE, sizeof(struct wb_object)), *taken;

    pthread_mutex_lock(&cache->lock);
    taken = cache->overwritten;
    cache->overwritten = fresh;
    for (unsigned i = 0; i < BUCKETS; i++)
        for (struct log_entry *entry = cache->buckets[i]; entry; entry = entry->next)
            if (!entry->opening && entry->log && __atomic_exchange_n(&entry->log->overwrites, false, __ATOMIC_RELAXED))
                g_array_append_val(taken, entry->object);
    pthread_mutex_unlock(&cache->lock);
    return taken;
}
