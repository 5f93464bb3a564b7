/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Passes: append the new records of logs in order. Also rebuilds the timeline from all logs if it is missing or
 * invalid, or from those logs that were replaced or removed (vrm).
 *
 * The order of steps makes a pass complete. The horizon is computed first: every change below it has ended, its records
 * are in their logs, and the logs were noted. Then the pass takes the notes; a thread that appends later notes again.
 * Then it reads the logs. Their records from the horizon on wait for the next pass, and their notes remain.
 */
#include "store/timeline/timeline_parts.h"

#include "store/directory/shard.h"
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define BATCH 512

void wb_gathering_init(struct wb_gathering *gathering, struct wb_store *store, int64_t horizon)
{
    *gathering = (struct wb_gathering){.store = store, .horizon = horizon};
    wb_sorter_init(&gathering->times, false);
    wb_sorter_init(&gathering->moves, true);
}

void wb_gathering_deinit(struct wb_gathering *gathering)
{
    wb_sorter_deinit(&gathering->times);
    wb_sorter_deinit(&gathering->moves);
}

/* Takes the notes; those of changes from now on belong to the next pass. */
static GHashTable *take_logs(struct wb_timeline *timeline)
{
    GHashTable *logs;

    pthread_mutex_lock(&timeline->lock);
    logs = timeline->logs;
    timeline->logs = wb_logids_new();
    timeline->pass++;
    pthread_mutex_unlock(&timeline->lock);
    return logs;
}

/* With `lock` held. */
static void give_back(struct wb_timeline *timeline, GHashTable *logs)
{
    GHashTableIter iter;
    void *key;

    g_hash_table_iter_init(&iter, logs);
    while (g_hash_table_iter_next(&iter, &key, NULL)) {
        const struct wb_logid *id = key;

        if (wb_logids_add(timeline->logs, id->object, id->file) < 0)
            timeline->overflow = true;
    }
}

/* ---- writing ------------------------------------------------------------------------------------------- */

/* Appends the entries of `sorter`, merged with those of `base` except of the logs in `without`; either may be NULL. */
static int append_merged(struct wb_array *to, struct wb_sorter *sorter, const struct wb_array *base,
                         GHashTable *without)
{
    struct wb_times_entry batch[BATCH], old[BATCH], fresh = {0};
    uint64_t index = 0;
    size_t used = 0, at = 0, loaded = 0;
    int r = wb_sorter_finish(sorter), more = r == 0 ? wb_sorter_next(sorter, &fresh) : r;

    while (more >= 0) {
        const struct wb_times_entry *kept = NULL;

        while (base && !kept) {
            if (at == loaded) {
                loaded = (size_t)MIN(base->count - index, BATCH);
                at = 0;
                if (loaded == 0)
                    break;
                r = wb_array_read(base->fd, index, old, loaded);
                if (r < 0)
                    return r;
                index += loaded;
            }
            if (wb_object_is_none(old[at].object) || wb_logids_have(without, old[at].object, old[at].file))
                at++;
            else
                kept = &old[at];
        }
        if (!kept && more == WB_END)
            break;
        if (kept && (more == WB_END || kept->when <= fresh.when)) {
            /* another of its logs has it already */
            if (more == 0 && kept->when == fresh.when && !sorter->by_object)
                more = wb_sorter_next(sorter, &fresh);
            batch[used++] = *kept;
            at++;
        } else {
            batch[used++] = fresh;
            more = wb_sorter_next(sorter, &fresh);
        }
        if (used == BATCH) {
            r = wb_array_append(to, batch, used);
            if (r < 0)
                return r;
            used = 0;
        }
    }
    return more < 0 ? more : wb_array_append(to, batch, used);
}

/* ---- new records ---------------------------------------------------------------------------------------- */

int wb_timeline_gather_logs(struct wb_timeline *timeline, struct wb_gathering *gathering, GHashTable *logs, bool forget)
{
    GHashTableIter iter;
    void *key;
    int r = 0;

    g_hash_table_iter_init(&iter, logs);
    while (r == 0 && g_hash_table_iter_next(&iter, &key, NULL)) {
        const struct wb_logid *id = key;
        bool held = false;

        if (timeline->stop && timeline->permille > 0)
            return -ECANCELED;
        r = wb_gather_log(gathering, id->object, id->file, &held);
        if (r == 0 && forget && !held)
            g_hash_table_iter_remove(&iter);
    }
    return r;
}

static int append_new(struct wb_timeline *timeline, struct wb_gathering *gathering)
{
    /* Appends while readers use the arrays; they know how far they may read. */
    struct wb_array times, moves;
    int r;

    pthread_mutex_lock(&timeline->lock);
    times = timeline->times;
    moves = timeline->moves;
    pthread_mutex_unlock(&timeline->lock);
    /* Moves first: after a crash in between they are known already, and skipped. */
    r = append_merged(&moves, &gathering->moves, NULL, NULL);
    if (r == 0)
        r = append_merged(&times, &gathering->times, NULL, NULL);
    pthread_mutex_lock(&timeline->lock);
    if (r == 0) {
        timeline->times = times;
        timeline->moves = moves;
    } else {
        wb_array_cut(&timeline->times, timeline->times.count, timeline->times.last);
        wb_array_cut(&timeline->moves, timeline->moves.count, timeline->moves.last);
    }
    pthread_mutex_unlock(&timeline->lock);
    return r;
}

static int take_up(struct wb_store *store)
{
    struct wb_timeline *timeline = store->timeline;
    struct wb_gathering gathering;
    GHashTable *logs, *left = wb_logids_new();
    int64_t horizon = wb_inflight_low_water(store);
    GHashTableIter iter;
    void *key;
    int copied = 0, r;

    wb_gathering_init(&gathering, store, horizon);
    gathering.after = timeline->times.last;
    gathering.moves_after = timeline->moves.last;
    logs = take_logs(timeline);
    g_hash_table_iter_init(&iter, logs);
    while (copied == 0 && g_hash_table_iter_next(&iter, &key, NULL))
        copied = wb_logids_add(left, ((struct wb_logid *)key)->object, ((struct wb_logid *)key)->file);
    r = copied == 0 ? wb_timeline_gather_logs(timeline, &gathering, logs, true) : copied;
    if (r == 0)
        r = append_new(timeline, &gathering);
    pthread_mutex_lock(&timeline->lock);
    /* If there was no copy of `logs`, none was removed from it. */
    give_back(timeline, r == 0 || copied < 0 ? logs : left);
    wb_timeline_save_pending(timeline);
    pthread_mutex_unlock(&timeline->lock);
    wb_gathering_deinit(&gathering);
    g_hash_table_unref(logs);
    g_hash_table_unref(left);
    return r;
}

/* ---- rebuild -------------------------------------------------------------------------------------------- */

struct gathering_all {
    struct wb_timeline *timeline;
    struct wb_gathering *gathering;
};

static int gather_entry(void *data, int fd, const char *name)
{
    const struct gathering_all *all = data;
    struct wb_object object;
    enum wb_object_file file;
    bool held;

    if (all->timeline->stop)
        return -ECANCELED;
    if (wb_object_file_parse(name, &object, &file) < 0 || (file != WB_FILE_UNDO && file != WB_FILE_CATALOG))
        return 0;
    return wb_gather_log(all->gathering, object, file, &held);
}

int wb_timeline_gather_all(struct wb_timeline *timeline, struct wb_gathering *gathering)
{
    struct gathering_all all = {timeline, gathering};
    int r = 0;

    for (unsigned i = 0; r == 0 && i < WB_SHARDS; i++) {
        timeline->permille = i * 1000 / WB_SHARDS;
        r = wb_shard_each(gathering->store->dir_fd, i, gather_entry, &all);
    }
    return r;
}

int wb_timeline_write_anew(struct wb_timeline *timeline, struct wb_gathering *gathering, GHashTable *without,
                           bool named,
                      struct wb_array *times, struct wb_array *moves)
{
    int r = wb_array_create(times, timeline->dir_fd, named ? "times.new" : NULL);

    if (r == 0)
        r = wb_array_create(moves, timeline->dir_fd, named ? "moves.new" : NULL);
    if (r == 0)
        r = append_merged(moves, &gathering->moves, without ? &timeline->moves : NULL, without);
    if (r == 0)
        r = append_merged(times, &gathering->times, without ? &timeline->times : NULL, without);
    if (r == 0 && named && (fdatasync(times->fd) < 0 || fdatasync(moves->fd) < 0 ||
                            renameat(timeline->dir_fd, "moves.new", timeline->dir_fd, "moves") < 0 ||
                            renameat(timeline->dir_fd, "times.new", timeline->dir_fd, "times") < 0))
        r = -errno;
    if (r < 0) {
        wb_array_close(times);
        wb_array_close(moves);
    }
    return r;
}

void wb_timeline_replace(struct wb_timeline *timeline, struct wb_array *times, struct wb_array *moves)
{
    wb_array_close(&timeline->times);
    wb_array_close(&timeline->moves);
    timeline->times = *times;
    timeline->moves = *moves;
}

static int rebuild(struct wb_store *store)
{
    struct wb_timeline *timeline = store->timeline;
    struct wb_array times = WB_ARRAY_INIT, moves = WB_ARRAY_INIT;
    struct wb_gathering gathering;
    int64_t horizon = wb_inflight_low_water(store);
    GHashTable *logs, *dropped;
    bool restricted;
    int r;

    logs = take_logs(timeline);
    pthread_mutex_lock(&timeline->lock);
    dropped = timeline->dropped;
    timeline->dropped = wb_logids_new();
    restricted = !timeline->rebuild && !timeline->overflow;
    timeline->rebuild |= timeline->overflow;
    timeline->overflow = false;
    /* A log that is dropped from now on, or too many notes, invalidate the result; then the rebuild is repeated. */
    pthread_mutex_unlock(&timeline->lock);

    wb_gathering_init(&gathering, store, restricted ? timeline->times.last + 1 : horizon);
    gathering.after = gathering.moves_after = -1;
    r = restricted ? wb_timeline_gather_logs(timeline, &gathering, dropped, false)
                   : wb_timeline_gather_all(timeline, &gathering);
    if (r == 0)
        r = wb_timeline_write_anew(timeline, &gathering, restricted ? dropped : NULL, true, &times, &moves);
    pthread_mutex_lock(&timeline->lock);
    if (r == 0) {
        wb_timeline_replace(timeline, &times, &moves);
        timeline->rebuild = false;
    }
    give_back(timeline, logs);
    if (restricted)
        give_back(timeline, dropped);
    if (r < 0) {
        GHashTable *newer = timeline->dropped;
        GHashTableIter iter;
        void *key;

        g_hash_table_iter_init(&iter, newer);
        while (g_hash_table_iter_next(&iter, &key, NULL))
            if (wb_logids_add(dropped, ((struct wb_logid *)key)->object, ((struct wb_logid *)key)->file) < 0)
                timeline->rebuild = true;
        timeline->dropped = g_hash_table_ref(dropped);
        g_hash_table_unref(newer);
    }
    wb_timeline_save_pending(timeline);
    pthread_mutex_unlock(&timeline->lock);
    timeline->permille = 0;
    wb_gathering_deinit(&gathering);
    g_hash_table_unref(logs);
    g_hash_table_unref(dropped);
    return r;
}

/* ---- a pass ---------------------------------------------------------------------------------------------- */

int wb_timeline_pass(struct wb_store *store)
{
    struct wb_timeline *timeline = store->timeline;
    bool anew, something;
    int r = 0;

    pthread_mutex_lock(&timeline->pass_lock);
    if (!store->writable) {
        r = wb_timeline_prepare_reader(store);
        pthread_mutex_unlock(&timeline->pass_lock);
        return r;
    }
    pthread_mutex_lock(&timeline->lock);
    anew = timeline->rebuild || timeline->overflow || g_hash_table_size(timeline->dropped) > 0;
    something = g_hash_table_size(timeline->logs) > 0;
    pthread_mutex_unlock(&timeline->lock);
    if (timeline->dir_fd < 0)
        r = -EIO;
    else if (anew)
        r = timeline->stop && timeline->rebuild ? -ECANCELED : rebuild(store);
    if (r == 0 && (something || anew))
        r = take_up(store);
    pthread_mutex_unlock(&timeline->pass_lock);
    return r;
}
