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

#include "base/cleanup.h"
#include "base/io.h"
#include "store/cache/logs_parts.h"
#include "store/directory/shard.h"
#include "store/inflight/spans.h"
#include "store/inflight/stages.h"
#include "store/parts.h"
#include "store/tables/manifest.h"
#include "store/timeline/timeline.h"
#include "time/ctime_clock.h"
#include "wayback/when.h"
#include <errno.h>
#include <fcntl.h>
#include <glib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

static bool closed_logs_reserve(struct wb_closed_logs *logs);

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

void wb_log_cache_set_manifest(struct wb_log_cache *cache, struct wb_manifest *manifest)
{
    cache->manifest = manifest;
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

/* Adds or removes one user. With `lock` held. Returns the entries to free without it, linked by `next`. */
static void log_entry_use(struct wb_log_cache *cache, struct log_entry *entry)
{
    if (entry->users++ > 0)
        return;
    list_remove(&cache->idle, entry);
    list_add(&cache->used, entry);
}

/* False: there is no memory to remember it, so the log has to remain open. */
static bool note_closed(struct wb_log_cache *cache, const struct log_entry *entry)
{
    if (!closed_logs_reserve(&cache->closed) || !closed_logs_reserve(&cache->overwritten))
        return false;
    wb_manifest_note(cache->manifest, entry->object, entry->file, entry->log);
    if (entry->log->dirty)
        wb_closed_logs_add(&cache->closed, entry->object, entry->file);
    if (entry->log->overwrites)
        wb_closed_logs_add(&cache->overwritten, entry->object, entry->file);
    return true;
}

static struct log_entry *log_entry_release(struct wb_log_cache *cache, struct log_entry *entry)
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

static void log_entries_free(struct log_entry *gone)
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

    log_entry_use(cache, entry);
    while (entry->opening)
        pthread_cond_wait(&cache->opened, &cache->lock);
    error = entry->error;
    if (error < 0)
        log_entries_free(log_entry_release(cache, entry));
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
        log_entries_free(log_entry_release(cache, entry));
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
    gone = log_entry_release(cache, log->cached);
    pthread_mutex_unlock(&cache->lock);
    log_entries_free(gone);
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

/*
 * ---- which logs have to be synced ----
 *
 * A thread that appends holds the log, so a log with new records since the last check is in use, or was released after
 * it: only these are examined, since every fsync looks.
 */

/*
 * A round syncs the logs that were appended to. A caller waits for a round that began after its call: a log that a
 * round takes is no longer marked dirty, although it is not on the disk before the round has ended. True: the caller
 * carries out a round itself, and ends it; false: another thread has done so.
 */
static bool log_cache_begin_round(struct wb_log_cache *cache)
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

static void log_cache_end_round(struct wb_log_cache *cache)
{
    pthread_mutex_lock(&cache->lock);
    cache->ended++;
    pthread_cond_broadcast(&cache->round);
    pthread_mutex_unlock(&cache->lock);
}

/* Reserves space for another one; false: there is no memory. */
static bool closed_logs_reserve(struct wb_closed_logs *logs)
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

static struct wb_closed_logs log_cache_take_closed(struct wb_log_cache *cache)
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
    log_entry_use(cache, entry);
    entry->log->taken = *logs;
    *logs = entry->log;
}

/* In a round: the logs that were appended to since the last one. Open ones, linked by `taken`, which are in use until
 * they are put back, all at once, */
static struct wb_log *log_cache_take_dirty(struct wb_log_cache *cache)
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

static void log_cache_put_dirty(struct wb_log_cache *cache, struct wb_log *logs)
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
        freed = log_entry_release(cache, entry);
        while (freed) {
            struct log_entry *next = freed->next;

            freed->next = gone;
            gone = freed;
            freed = next;
        }
    }
    pthread_mutex_unlock(&cache->lock);
    log_entries_free(gone);
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
            if (!closed_logs_reserve(ret))
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
    log_entry_use(cache, entry);
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
    gone = log_entry_release(cache, entry);
    pthread_mutex_unlock(&cache->lock);
    log_entries_free(gone);
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

/* Syncs logs to stable storage, before the changes they describe. */

/* Records refer to cloned before-images, so the images are made durable first. */
static int sync_images(struct wb_store *store, struct wb_object object)
{
    _cleanup_close_ int fd = wb_store_open_file_as_is(store, object, WB_FILE_IMAGE, O_RDONLY);
    _cleanup_close_ int dir = -1;
    char path[WB_OBJECT_PATH_MAX];

    if (fd < 0)
        return fd == -ENOENT ? 0 : fd;
    if (fsync(fd) < 0)
        return -errno;
    wb_object_path(object, WB_FILE_IMAGE, path);
    *strrchr(path, '/') = '\0';
    dir = openat(store->dir_fd, path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    return dir < 0 ? -errno : wb_fsync_dir(dir);
}

int wb_store_sync_log(struct wb_store *store, struct wb_object object, enum wb_object_file file)
{
    char path[WB_OBJECT_PATH_MAX];
    struct wb_log *log;
    int r;

    if (!store->writable)
        return 0;
    r = wb_store_get_log(store, object, file, false, &log);
    if (r < 0)
        return r == -ENOENT ? 0 : r;
    if (file == WB_FILE_UNDO && store->can_clone)
        r = sync_images(store, object);
    if (r == 0) {
        wb_object_path(object, file, path);
        r = wb_log_sync(log, store->dir_fd, path);
    }
    wb_store_put_log(store, log);
    return r;
}

#define WHOLE (SYNC_FILE_RANGE_WAIT_BEFORE | SYNC_FILE_RANGE_WRITE | SYNC_FILE_RANGE_WAIT_AFTER)

/* Starts this many writes at once: waiting for each before the next would take a context switch for each. */
#define CLOSED_AT_ONCE 32

/* An error here occurs again at the sync. */
static void write_closed(struct wb_store *store)
{
    struct wb_closed_logs closed = log_cache_take_closed(store->logs);
    int fds[CLOSED_AT_ONCE];

    for (size_t begin = 0; begin < closed.count; begin += CLOSED_AT_ONCE) {
        size_t count = MIN(closed.count - begin, CLOSED_AT_ONCE);

        for (size_t i = 0; i < count; i++) {
            const struct wb_closed_log *log = &closed.items[begin + i];

            fds[i] = wb_store_open_file_as_is(store, log->object, log->file, O_RDONLY | O_CLOEXEC);
            if (fds[i] >= 0)
                sync_file_range(fds[i], 0, 0, SYNC_FILE_RANGE_WRITE);
        }
        for (size_t i = 0; i < count; i++) {
            if (fds[i] < 0)
                continue;
            sync_file_range(fds[i], 0, 0, WHOLE);
            close(fds[i]);
        }
    }
    wb_closed_logs_clear(&closed);
}

void wb_store_write_logs(struct wb_store *store)
{
    struct wb_log *logs;

    if (!store->logs || !log_cache_begin_round(store->logs))
        return;
    logs = log_cache_take_dirty(store->logs);
    for (struct wb_log *log = logs; log; log = log->taken)
        sync_file_range(log->fd, 0, 0, SYNC_FILE_RANGE_WRITE);
    for (struct wb_log *log = logs; log; log = log->taken)
        sync_file_range(log->fd, 0, 0, WHOLE);
    log_cache_put_dirty(store->logs, logs);
    write_closed(store);
    log_cache_end_round(store->logs);
}

int wb_store_sync_common(struct wb_store *store)
{
    int r;

    if (!store->writable)
        return 0;
    r = wb_actors_sync(store);
    if (r >= 0)
        r = wb_stages_sync(store);
    return r < 0 ? r : wb_inflight_sync(store->inflight);
}

static int sync_all(struct wb_store *store)
{
    int r = wb_store_sync_common(store);

    if (r < 0)
        return r;
    wb_store_write_logs(store);
    /*
     * Without the content of users' files, which would reach the disk while it changes, before the records of these
     * changes. If only a full sync makes all logs durable, the logs are at least written before that content.
     */
    if (store->ordered && !store->stamps.unclean)
        return wb_inflight_commit(store->inflight);
    if (syncfs(store->dir_fd) < 0)
        return -errno;
    store->stamps.unclean = false;
    return 0;
}

int wb_store_sync_all(struct wb_store *store)
{
    int64_t begun;
    int r;

    if (!store->writable)
        return wb_store_sync_common(store);
    begun = wb_spans_begin_sync(store);
    r = wb_stages_sync_begin(store);
    if (r == 0)
        r = sync_all(store);
    wb_stages_sync_end(store);
    if (r == 0)
        wb_spans_synced(store, begun);
    return r;
}
