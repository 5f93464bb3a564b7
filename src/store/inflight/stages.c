/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * The file `stages`: slots that are written with one pwrite when a stage begins and freed with another when it has
 * ended. Within a page, a pwrite is atomic, also for SIGKILL; the checksum reveals a slot that a power cut damaged. The
 * file `stages.lost` records which slots a power cut may have removed completely (lost_slots.h).
 */
#include "store/inflight/stages.h"

#include "base/checksum.h"
#include "base/cleanup.h"
#include "base/io.h"
#include "format/object_key.h"
#include "store/inflight/lost_slots.h"
#include "store/parts.h"
#include "time/ctime_clock.h"
#include <endian.h>
#include <errno.h>
#include <fcntl.h>
#include <glib.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define MAGIC "WBSTAGES"
/* Slots by which the file grows. */
#define SLOTS_GROWN 64
/* No daemon has more files open for writing; a file that claims more is invalid. */
#define SLOTS_MAX (1u << 20)

struct writing {
    uint64_t number; /* counts the writes of slots; 0: found in the file */
    int64_t clock;   /* not later than any ctime of the change that the slot is for */
};

/* By slot; begin == 0: free. */
struct entries {
    struct wb_stage_entry *list;
    struct writing *writings;
    unsigned count, room;
};

struct wb_stages {
    pthread_mutex_t lock;
    int fd;          /* -1: there is no such file yet */
    bool was_read;   /* `by_object` has all slots of the file */
    struct entries entries;
    GHashTable *by_object; /* &entry.object of its own -> slot + 1 */
    unsigned free_hint;    /* no slot below is free */
    unsigned allocated;    /* slots whose space is written and on the disk, at least as zeros */
    pthread_mutex_t sync_lock; /* taken before `lock` */
    uint64_t written, synced;  /* the newest number; the number up to which they are on the disk */
    unsigned unsynced;         /* slots in use that are not on the disk */
    pthread_mutex_t removing;  /* taken after `sync_lock` and before `lock` */
    bool removed;              /* slots that may still be on the disk were removed since the last sync */
    bool ended;                /* ... that certainly were, so that what ends their stages must be there first */
    atomic_uint syncs;         /* under way, see wb_stages_sync_begin */
    _Atomic int64_t sync_began; /* when the newest of them began: no file that it syncs has a later ctime */
    int lost_fd;               /* of stages.lost; -1: not open, or its time proves nothing */
    void (*write_logs)(struct wb_store *store);
    int64_t since;             /* its modification time: since when slots may be missing on the disk */
};

/* Appends an entry. 0 or -ENOMEM. */
static int append(struct entries *entries, const struct wb_stage_entry *entry)
{
    if (entries->count == entries->room) {
        unsigned room = MAX(64u, 2 * entries->room);
        struct wb_stage_entry *list = g_try_realloc_n(entries->list, room, sizeof(*list));
        struct writing *writings;

        if (!list)
            return -ENOMEM;
        entries->list = list;
        writings = g_try_realloc_n(entries->writings, room, sizeof(*writings));
        if (!writings)
            return -ENOMEM;
        entries->writings = writings;
        entries->room = room;
    }
    entries->writings[entries->count] = (struct writing){0};
    entries->list[entries->count++] = *entry;
    return 0;
}

/* 0 or -ENOMEM. */
static int note(struct wb_stages *stages, struct wb_object object, unsigned slot)
{
    struct wb_object *key = g_try_new(struct wb_object, 1);

    if (!key)
        return -ENOMEM;
    *key = object;
    g_hash_table_insert(stages->by_object, key, GUINT_TO_POINTER(slot + 1));
    return 0;
}

/* ---- reading --------------------------------------------------------------------------------- */

/* All slots of the file, free ones with begin == 0. */
static int read_slots(int fd, struct entries *entries)
{
    struct wb_stage_entry entry;
    uint8_t data[WB_STAGE_SIZE];
    size_t length;
    int r;

    r = wb_pread_full(fd, data, sizeof(data), 0, &length);
    if (r < 0 || length < sizeof(data) || memcmp(data, MAGIC, strlen(MAGIC)) != 0)
        return r;
    for (unsigned slot = 0; slot < SLOTS_MAX; slot++) {
        r = wb_pread_full(fd, data, sizeof(data), WB_STAGE_SIZE * (slot + UINT64_C(1)), &length);
        if (r < 0 || length < sizeof(data))
            return r;
        if (wb_stage_decode(data, &entry) < 0)
            entry = (struct wb_stage_entry){0};
        r = append(entries, &entry);
        if (r < 0)
            return r;
    }
    return 0;
}

/* Another process may have left it: all slots in the file are on the disk. */
static int open_lost(struct wb_store *store)
{
    struct wb_stages *stages = store->stages;

    if (!store->ordered)
        return 0;
    stages->lost_fd = wb_open_own(store->dir_fd, WB_LOST_SLOTS_NAME, O_RDWR, 0);
    if (stages->lost_fd < 0)
        return stages->lost_fd == -ENOENT ? 0 : stages->lost_fd;
    return wb_lost_slots_mark(stages->lost_fd, WB_LOST_SLOTS_NONE);
}

int wb_stages_open(struct wb_store *store, void (*write_logs)(struct wb_store *store))
{
    struct wb_stages *stages = g_try_new0(struct wb_stages, 1);
    int r = 0;

    if (!stages)
        return -ENOMEM;
    pthread_mutex_init(&stages->lock, NULL);
    pthread_mutex_init(&stages->sync_lock, NULL);
    pthread_mutex_init(&stages->removing, NULL);
    stages->by_object = g_hash_table_new_full(wb_object_hash, wb_object_is_key, g_free, NULL);
    stages->fd = wb_open_own(store->dir_fd, WB_STAGES_NAME, O_RDWR, 0);
    stages->lost_fd = -1;
    stages->since = WB_LOST_SLOTS_NONE;
    stages->write_logs = write_logs;
    store->stages = stages;
    if (stages->fd < 0)
        return stages->fd == -ENOENT ? 0 : stages->fd;
    r = read_slots(stages->fd, &stages->entries);
    stages->allocated = stages->entries.count;
    if (r == 0 && stages->allocated > 0 && fsync(stages->fd) < 0)
        r = -errno;
    if (r == 0)
        r = open_lost(store);
    for (unsigned i = 0; r == 0 && i < stages->entries.count; i++) {
        const struct wb_stage_entry *entry = &stages->entries.list[i];

        if (entry->begin == 0)
            continue;
        r = note(stages, entry->object, i);
        /* No record may be older: the clock continues above it. */
        wb_inflight_raise(store->inflight, entry->begin);
    }
    stages->was_read = r == 0;
    return r;
}

struct wb_stages *wb_stages_free(struct wb_store *store)
{
    struct wb_stages *stages = store->stages;

    if (!stages)
        return NULL;
    if (stages->fd >= 0) {
        /* With no stage under way the file is equivalent to none, and faster to read if it is short. */
        if (stages->was_read && g_hash_table_size(stages->by_object) == 0 && ftruncate(stages->fd, WB_STAGE_SIZE) < 0)
            errno = 0;
        close(stages->fd);
    }
    if (stages->lost_fd >= 0)
        close(stages->lost_fd);
    g_free(stages->entries.list);
    g_free(stages->entries.writings);
    g_hash_table_unref(stages->by_object);
    pthread_mutex_destroy(&stages->lock);
    pthread_mutex_destroy(&stages->sync_lock);
    pthread_mutex_destroy(&stages->removing);
    g_free(stages);
    return NULL;
}

/* Another process writes the table: read it again each time. */
static int find_from_outside(const struct wb_store *store, struct wb_object object, struct wb_stage_entry *ret)
{
    _cleanup_close_ int fd = openat(store->dir_fd, WB_STAGES_NAME, O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
    struct entries entries = {0};
    struct stat st;
    int r, found = 0;

    if (fd < 0)
        return errno == ENOENT ? 0 : -errno;
    if (fstat(fd, &st) < 0)
        return -errno;
    if (st.st_size <= WB_STAGE_SIZE)
        return 0;
    r = read_slots(fd, &entries);
    for (unsigned i = 0; r == 0 && found == 0 && i < entries.count; i++) {
        found = entries.list[i].begin > 0 && wb_object_equal(entries.list[i].object, object);
        if (found)
            *ret = entries.list[i];
    }
    g_free(entries.list);
    g_free(entries.writings);
    return r < 0 ? r : found;
}

int wb_stages_find(const struct wb_store *store, struct wb_object object, struct wb_stage_entry *ret, int *ret_slot)
{
    struct wb_stages *stages = store->stages;
    unsigned known;

    if (!stages)
        return find_from_outside(store, object, ret);
    pthread_mutex_lock(&stages->lock);
    known = GPOINTER_TO_UINT(g_hash_table_lookup(stages->by_object, &object));
    if (known > 0)
        *ret = stages->entries.list[known - 1];
    pthread_mutex_unlock(&stages->lock);
    if (known > 0 && ret_slot)
        *ret_slot = (int)known - 1;
    return known > 0;
}

int64_t wb_stages_gap_when(const struct wb_store *store, struct wb_object object, const struct wb_log_skip *skip,
                           const struct wb_record *gap)
{
    struct wb_stage_entry stage;
    int r;

    if (!wb_gap_is_partial(gap->gap.reason))
        return gap->written;
    if (skip->stage_end > 0 && gap->written >= skip->stage_begin)
        return MAX(skip->stage_end, skip->joined_when);
    r = wb_stages_find(store, object, &stage, NULL);
    return r < 0 || (r > 0 && gap->written >= stage.begin) ? WB_WHEN_UNDER_WAY : gap->written;
}

int wb_stages_each(struct wb_store *store, int (*callback)(int slot, const struct wb_stage_entry *entry, void *data),
                   void *data)
{
    struct wb_stages *stages = store->stages;
    struct wb_stage_entry entry;
    unsigned count = stages ? stages->entries.count : 0;
    int r = 0;

    for (unsigned i = 0; r == 0 && i < count; i++) {
        pthread_mutex_lock(&stages->lock);
        entry = stages->entries.list[i];
        pthread_mutex_unlock(&stages->lock);
        if (entry.begin > 0)
            r = callback((int)i, &entry, data);
    }
    return r;
}

/* ---- writing --------------------------------------------------------------------------------- */

/* Creates the file at the first stage ever. With `lock` held. */
static int make_file(struct wb_store *store)
{
    struct wb_stages *stages = store->stages;
    uint8_t head[WB_STAGE_SIZE] = MAGIC;
    int fd, r;

    if (stages->fd >= 0)
        return 0;
    fd = wb_open_own(store->dir_fd, WB_STAGES_NAME, O_RDWR | O_CREAT, 0600);
    if (fd < 0)
        return fd;
    r = wb_pwrite_full(fd, head, sizeof(head), 0);
    if (r == 0)
        r = wb_fsync_dir(store->dir_fd);
    if (r < 0) {
        close(fd);
        return r;
    }
    stages->fd = fd;
    return 0;
}

/*
 * Ensures that `slot` is part of the file on the disk. A slot is overwritten in place, so one write of its page makes
 * it durable, without a change of metadata that would have to be committed as well. With `lock` held.
 */
static int allocate(struct wb_stages *stages, unsigned slot)
{
    g_autofree uint8_t *data = NULL;
    size_t length = (size_t)SLOTS_GROWN * WB_STAGE_SIZE;
    int r;

    if (slot < stages->allocated)
        return 0;
    data = g_try_malloc0(length);
    if (!data)
        return -ENOMEM;
    r = wb_pwrite_full(stages->fd, data, length, WB_STAGE_SIZE * (stages->allocated + UINT64_C(1)));
    if (r == 0 && fsync(stages->fd) < 0)
        r = -errno;
    if (r == 0)
        stages->allocated += SLOTS_GROWN;
    return r;
}

/* With `lock` held. 0 or -errno. */
static int mark_lost(struct wb_stages *stages, int64_t since)
{
    int r = since == stages->since ? 0 : wb_lost_slots_mark(stages->lost_fd, since);

    if (r == 0)
        stages->since = since;
    return r;
}

/* If this fails, more counts as lost than really was. With `lock` held. */
static void mark_found(struct wb_stages *stages, int64_t since)
{
    if (stages->lost_fd >= 0 && mark_lost(stages, since) < 0)
        errno = 0;
}

/*
 * Called before a slot is written that is not synced at once. False: nothing would reveal its loss. A file system
 * without a journal writes metadata to the disk in any order. With `lock` held.
 */
static bool announce(struct wb_store *store, int64_t clock)
{
    struct wb_stages *stages = store->stages;

    if (!store->ordered)
        return true;
    if (stages->lost_fd < 0) {
        int fd = wb_lost_slots_open(store->dir_fd);

        if (fd < 0)
            return false;
        stages->lost_fd = fd;
    }
    return mark_lost(stages, MIN(clock, stages->since)) == 0;
}

/* The lowest free slot, so that the file remains short. 0 or -errno. With `lock` held. */
static int free_slot(struct wb_stages *stages, unsigned *ret)
{
    const struct wb_stage_entry none = {0};
    unsigned slot = stages->free_hint;
    int r = 0;

    while (slot < stages->entries.count && stages->entries.list[slot].begin > 0)
        slot++;
    stages->free_hint = slot;
    if (slot == SLOTS_MAX)
        return -ENFILE;
    if (slot == stages->entries.count)
        r = append(&stages->entries, &none);
    *ret = slot;
    return r;
}

int wb_stages_add(struct wb_store *store, const struct wb_stage_entry *entry)
{
    struct wb_stages *stages = store->stages;
    uint8_t data[WB_STAGE_SIZE];
    int64_t clock = wb_ctime_clock();
    unsigned slot = 0;
    bool at_once;
    int r;

    wb_stage_encode(entry, data);
    /* A file that has just been synced may have a ctime of this tick, or a later one: a ctime may be finer than this
     * clock, which may be late. It must not count as lost. */
    at_once = stages->syncs > 0 || (store->ordered && clock <= stages->sync_began);
    pthread_mutex_lock(&stages->lock);
    r = make_file(store);
    if (r == 0)
        r = free_slot(stages, &slot);
    if (r == 0)
        r = allocate(stages, slot);
    at_once |= r == 0 && !at_once && !announce(store, clock);
    if (r == 0)
        r = note(stages, entry->object, slot);
    if (r == 0) {
        r = wb_pwrite_full(stages->fd, data, sizeof(data), WB_STAGE_SIZE * (slot + UINT64_C(1)));
        if (r < 0)
            g_hash_table_remove(stages->by_object, &entry->object);
    }
    if (r == 0) {
        stages->entries.list[slot] = *entry;
        stages->free_hint = slot + 1;
        stages->entries.writings[slot] = (struct writing){++stages->written, clock};
        stages->unsynced++;
    }
    pthread_mutex_unlock(&stages->lock);
    /* The change that this slot is for must not reach the disk first: the sync under way may write it. */
    if (r == 0 && (at_once || stages->syncs > 0)) {
        r = wb_stages_sync(store);
        if (r < 0)
            wb_stages_remove(store, (int)slot);
    }
    return r < 0 ? r : (int)slot;
}

void wb_stages_remove(struct wb_store *store, int slot)
{
    struct wb_stages *stages = store->stages;
    struct wb_stage_entry *entry;
    uint8_t zeros[sizeof(uint64_t)] = {0};

    pthread_mutex_lock(&stages->removing);
    pthread_mutex_lock(&stages->lock);
    entry = &stages->entries.list[slot];
    g_hash_table_remove(stages->by_object, &entry->object);
    *entry = (struct wb_stage_entry){0};
    if (stages->entries.writings[slot].number > stages->synced)
        stages->unsynced--;
    /* The log that ends the stage has its stamp already: if that is on the disk and the end is not, the log shows the
     * loss. */
    if (stages->unsynced == 0)
        mark_found(stages, WB_LOST_SLOTS_NONE);
    stages->free_hint = MIN(stages->free_hint, (unsigned)slot);
    stages->removed = true;
    stages->ended |= stages->entries.writings[slot].number <= stages->synced;
    /* If this write fails, recovery looks for the end of the stage, and finds it. */
    if (wb_pwrite_full(stages->fd, zeros, sizeof(zeros), WB_STAGE_SIZE * ((unsigned)slot + UINT64_C(1))) < 0)
        errno = 0;
    pthread_mutex_unlock(&stages->lock);
    pthread_mutex_unlock(&stages->removing);
}

/* ---- the disk -------------------------------------------------------------------------------- */

/* All slots up to that number are on the disk. With `lock` held. */
static void note_synced(struct wb_stages *stages, uint64_t number)
{
    int64_t since = WB_LOST_SLOTS_NONE;

    stages->synced = number;
    stages->unsynced = 0;
    for (unsigned i = 0; i < stages->entries.count; i++) {
        const struct writing *writing = &stages->entries.writings[i];

        if (stages->entries.list[i].begin == 0 || writing->number <= number)
            continue;
        stages->unsynced++;
        since = MIN(since, writing->clock);
    }
    mark_found(stages, since);
}

/*
 * Without its slot, a file that had grown on the disk would seem never to have been shorter, if the record that ends
 * its stage were not there. What grew in other stages may be there before its slot now; `announce` shows that.
 */
static int commit_ends(struct wb_store *store)
{
    store->stages->write_logs(store);
    return store->ordered ? wb_inflight_commit(store->inflight) : 0;
}

static int sync_slots(struct wb_store *store, bool removed)
{
    struct wb_stages *stages = store->stages;
    bool needed, ended;
    uint64_t written;
    int r = 0;

    if (!stages)
        return 0;
    /* Held meanwhile: no thread continues before the slots that another one is writing are on the disk. */
    pthread_mutex_lock(&stages->sync_lock);
    pthread_mutex_lock(&stages->removing);
    pthread_mutex_lock(&stages->lock);
    written = stages->written;
    needed = stages->unsynced > 0 || (removed && stages->removed);
    ended = stages->ended;
    pthread_mutex_unlock(&stages->lock);
    if (needed && ended)
        r = commit_ends(store);
    if (needed && r == 0 && fdatasync(stages->fd) < 0)
        r = -errno;
    if (needed && r == 0) {
        stages->removed = stages->ended = false;
        pthread_mutex_lock(&stages->lock);
        note_synced(stages, written);
        pthread_mutex_unlock(&stages->lock);
    }
    pthread_mutex_unlock(&stages->removing);
    pthread_mutex_unlock(&stages->sync_lock);
    return r;
}

int wb_stages_sync(struct wb_store *store)
{
    return sync_slots(store, false);
}

int wb_stages_sync_removed(struct wb_store *store)
{
    return sync_slots(store, true);
}

int wb_stages_sync_begin(struct wb_store *store)
{
    struct wb_stages *stages = store->stages;
    int64_t now = wb_ctime_latest(), before;

    if (!stages)
        return 0;
    stages->syncs++;
    before = stages->sync_began;
    while (before < now && !atomic_compare_exchange_weak(&stages->sync_began, &before, now))
        ;
    return wb_stages_sync(store);
}

void wb_stages_sync_end(struct wb_store *store)
{
    if (store->stages)
        store->stages->syncs--;
}
