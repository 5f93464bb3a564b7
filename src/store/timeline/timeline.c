/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * The part of the timeline on the path of a change, which is small; and opening and closing it.
 *
 * A log is noted after its record was appended, and a pass takes the noted logs after it computed the horizon
 * (timeline_pass.c). So if the current pass is already in log->noted, the pass that takes the note also reads the
 * record; and a crash between the two leaves the change in flight, whose logs the next opening notes again.
 */
#include "store/timeline/timeline_parts.h"

#include "base/cleanup.h"
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <unistd.h>

/* If one pass has more logs than this, they are not remembered: the next pass reads all logs. */
#define LOGS_MAX 65536

#define NAME_TIMES "times"
#define NAME_MOVES "moves"
#define NAME_PENDING "pending"

/* ---- sets of logs ---------------------------------------------------------------------------------- */

static guint logid_hash(const void *key)
{
    const struct wb_logid *id = key;
    uint64_t mixed = (id->object.ino ^ (uint64_t)id->object.birth * 31) * 2 + (id->file == WB_FILE_CATALOG);

    return (guint)(mixed * UINT64_C(0x9e3779b97f4a7c15) >> 32);
}

static gboolean logid_equal(const void *a, const void *b)
{
    const struct wb_logid *x = a, *y = b;

    return x->file == y->file && wb_object_equal(x->object, y->object);
}

GHashTable *wb_logids_new(void)
{
    return g_hash_table_new_full(logid_hash, logid_equal, g_free, NULL);
}

int wb_logids_add(GHashTable *logs, struct wb_object object, enum wb_object_file file)
{
    struct wb_logid *id;

    if (wb_logids_have(logs, object, file))
        return 0;
    id = g_try_new(struct wb_logid, 1);
    if (!id)
        return -ENOMEM;
    *id = (struct wb_logid){object, file};
    g_hash_table_add(logs, id);
    return 0;
}

/* ---- logs that a pass has to read ------------------------------------------------------------------ */

/* After a crash all logs are read again. */
static void lose_pending(struct wb_timeline *timeline)
{
    wb_array_close(&timeline->pending);
    if (timeline->dir_fd >= 0)
        unlinkat(timeline->dir_fd, NAME_PENDING, 0);
}

static void note_locked(struct wb_timeline *timeline, struct wb_object object, enum wb_object_file file)
{
    struct wb_times_entry entry = {.object = object, .file = file};

    if (wb_logids_have(timeline->logs, object, file))
        return;
    /* Without memory for another one, as with too many: the next pass reads all logs. */
    if (g_hash_table_size(timeline->logs) >= LOGS_MAX || wb_logids_add(timeline->logs, object, file) < 0) {
        timeline->overflow = true;
        lose_pending(timeline);
        return;
    }
    if (timeline->pending.fd >= 0 && wb_array_append(&timeline->pending, &entry, 1) < 0)
        lose_pending(timeline);
}

void wb_timeline_note(struct wb_store *store, struct wb_log *log, struct wb_object object,
                      enum wb_object_file file)
{
    struct wb_timeline *timeline = store->timeline;

    if (!timeline || log->noted == timeline->pass)
        return;
    pthread_mutex_lock(&timeline->lock);
    log->noted = timeline->pass;
    note_locked(timeline, object, file);
    pthread_mutex_unlock(&timeline->lock);
}

void wb_timeline_drop(struct wb_store *store, struct wb_object object, enum wb_object_file file)
{
    struct wb_timeline *timeline = store->timeline;

    if (!timeline)
        return;
    pthread_mutex_lock(&timeline->lock);
    /* Until all entries have been checked again. */
    lose_pending(timeline);
    if (wb_logids_add(timeline->dropped, object, file) < 0)
        timeline->rebuild = true;
    pthread_mutex_unlock(&timeline->lock);
}

void wb_timeline_save_pending(struct wb_timeline *timeline)
{
    struct wb_array fresh = WB_ARRAY_INIT;
    GHashTableIter iter;
    void *key;
    int r;

    if (timeline->rebuild || timeline->overflow || g_hash_table_size(timeline->dropped) > 0)
        return;
    if (timeline->pending.fd >= 0 && g_hash_table_size(timeline->logs) == 0) {
        if (wb_array_cut(&timeline->pending, 0, 0) < 0)
            lose_pending(timeline);
        return;
    }
    r = wb_array_create(&fresh, timeline->dir_fd, NAME_PENDING ".new");
    g_hash_table_iter_init(&iter, timeline->logs);
    while (r == 0 && g_hash_table_iter_next(&iter, &key, NULL)) {
        const struct wb_logid *id = key;
        struct wb_times_entry entry = {.object = id->object, .file = id->file};

        r = wb_array_append(&fresh, &entry, 1);
    }
    if (r == 0 && renameat(timeline->dir_fd, NAME_PENDING ".new", timeline->dir_fd, NAME_PENDING) == 0) {
        wb_array_close(&timeline->pending);
        timeline->pending = fresh;
        return;
    }
    wb_array_close(&fresh);
    lose_pending(timeline);
}

/* ---- opening and closing ---------------------------------------------------------------------------- */

/* The logs that no pass had read before a crash. */
static int read_pending(struct wb_timeline *timeline)
{
    struct wb_times_entry entry;
    int r = wb_array_open(&timeline->pending, timeline->dir_fd, NAME_PENDING, true);

    if (r == 0 && timeline->pending.count > LOGS_MAX)
        r = -EBADMSG;
    for (uint64_t i = 0; r == 0 && i < timeline->pending.count; i++) {
        r = wb_array_read(timeline->pending.fd, i, &entry, 1);
        if (r == 0 && wb_object_is_none(entry.object))
            r = -EBADMSG;
        if (r == 0)
            wb_logids_add(timeline->logs, entry.object, entry.file);
    }
    return r;
}

static int note_left(const struct wb_inflight_entry *entry, void *data)
{
    struct wb_timeline *timeline = data;

    note_locked(timeline, entry->a, entry->a_kind);
    if (!wb_object_is_none(entry->b))
        note_locked(timeline, entry->b, entry->b_kind);
    return 0;
}

static void open_files(struct wb_store *store, struct wb_timeline *timeline)
{
    int r = 0;

    if (mkdirat(store->dir_fd, WB_TIMELINE_NAME, 0700) < 0 && errno != EEXIST)
        r = -errno;
    timeline->dir_fd = openat(store->dir_fd, WB_TIMELINE_NAME, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (r == 0)
        r = wb_array_open(&timeline->times, timeline->dir_fd, NAME_TIMES, true);
    if (r == 0)
        r = wb_array_open(&timeline->moves, timeline->dir_fd, NAME_MOVES, true);
    /* Data that was only in the page cache is lost, such as the list of pending logs. */
    if (r == 0 && !wb_inflight_lost_power(store))
        r = read_pending(timeline);
    if (r < 0 || timeline->pending.fd < 0) {
        timeline->rebuild = true;
        lose_pending(timeline);
    }
    wb_inflight_each(store, note_left, timeline);
}

int wb_timeline_open(struct wb_store *store)
{
    struct wb_timeline *timeline = g_try_new0(struct wb_timeline, 1);

    if (!timeline)
        return -ENOMEM;
    pthread_mutex_init(&timeline->pass_lock, NULL);
    pthread_mutex_init(&timeline->lock, NULL);
    timeline->dir_fd = -1;
    timeline->times = timeline->moves = timeline->pending = (struct wb_array)WB_ARRAY_INIT;
    timeline->logs = wb_logids_new();
    timeline->dropped = wb_logids_new();
    timeline->pass = 1;
    if (store->writable)
        open_files(store, timeline);
    store->timeline = timeline;
    return 0;
}

struct wb_timeline *wb_timeline_free(struct wb_store *store)
{
    struct wb_timeline *timeline = store->timeline;

    if (!timeline)
        return NULL;
    /* A rebuild can wait for the next opening; users are waiting for this close to end. */
    if (store->writable && store->inflight && !timeline->rebuild && !timeline->overflow)
        wb_timeline_pass(store);
    wb_array_close(&timeline->times);
    wb_array_close(&timeline->moves);
    wb_array_close(&timeline->pending);
    wb_close_fd(&timeline->dir_fd);
    g_hash_table_unref(timeline->logs);
    g_hash_table_unref(timeline->dropped);
    pthread_mutex_destroy(&timeline->pass_lock);
    pthread_mutex_destroy(&timeline->lock);
    g_free(timeline);
    return NULL;
}

void wb_timeline_stop(struct wb_store *store)
{
    if (store->timeline)
        store->timeline->stop = true;
}

/* ---- queries ------------------------------------------------------------------------------------------ */

bool wb_timeline_is_building(struct wb_store *store, unsigned *ret_permille)
{
    struct wb_timeline *timeline = store->timeline;
    bool building;

    pthread_mutex_lock(&timeline->lock);
    building = store->writable ? timeline->rebuild || timeline->overflow : !timeline->prepared;
    pthread_mutex_unlock(&timeline->lock);
    *ret_permille = timeline->permille;
    return building;
}

int wb_times_open(struct wb_times *times, struct wb_store *store)
{
    struct wb_timeline *timeline = store->timeline;
    int r = 0;

    *times = (struct wb_times)WB_TIMES_INIT;
    pthread_mutex_lock(&timeline->lock);
    if (timeline->rebuild || timeline->overflow || timeline->times.fd < 0) {
        r = -EAGAIN;
    } else {
        times->fd = fcntl(timeline->times.fd, F_DUPFD_CLOEXEC, 3);
        times->moves_fd = fcntl(timeline->moves.fd, F_DUPFD_CLOEXEC, 3);
        times->count = timeline->times.count;
        times->moves_count = timeline->moves.count;
        if (times->fd < 0 || times->moves_fd < 0)
            r = -EMFILE;
    }
    pthread_mutex_unlock(&timeline->lock);
    if (r < 0)
        wb_times_close(times);
    return r;
}

void wb_times_close(struct wb_times *times)
{
    wb_close_fd(&times->fd);
    wb_close_fd(&times->moves_fd);
    *times = (struct wb_times)WB_TIMES_INIT;
}

/* Saving less than this (2.5 MiB) does not justify reading all logs. */
#define SHORTEN_MIN 65536u

void wb_timeline_shorten(struct wb_store *store)
{
    struct wb_timeline *timeline = store->timeline;
    struct wb_times times = WB_TIMES_INIT;
    uint64_t gone = 0;

    if (wb_times_open(&times, store) < 0)
        return;
    if (wb_times_find(&times, wb_store_horizon(store) + 1, &gone) == 0 && gone >= SHORTEN_MIN &&
        gone > times.count / 2) {
        pthread_mutex_lock(&timeline->lock);
        timeline->rebuild = true;
        pthread_mutex_unlock(&timeline->lock);
    }
    wb_times_close(&times);
}
