/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * The part of the timeline on the path of a change, which is small; and opening and closing it.
 *
 * A log is noted after its record was appended, and a pass takes the noted logs after it computed the low water
 * of changes in flight. So if the current pass is already in log->noted, the pass that takes the note also reads the
 * record; and a crash between the two leaves the change in flight, whose logs the next opening notes again.
 */
#include "store/timeline/timeline_parts.h"

#include "base/cleanup.h"
#include "base/io.h"
#include "store/directory/shard.h"
#include "store/tables/manifest.h"
#include <endian.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

/* If one pass has more logs than this, they are not remembered: the next pass reads all logs. */
#define LOGS_MAX 65536

#define NAME_TIMES "times"
#define NAME_MOVES "moves"
#define NAME_PENDING "pending"

static int timeline_prepare_reader(struct wb_store *store);

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

static GHashTable *logids_new(void)
{
    return g_hash_table_new_full(logid_hash, logid_equal, g_free, NULL);
}

/* 0 or -ENOMEM. */
static int logids_add(GHashTable *logs, struct wb_object object, enum wb_object_file file)
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
    if (g_hash_table_size(timeline->logs) >= LOGS_MAX || logids_add(timeline->logs, object, file) < 0) {
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
    if (logids_add(timeline->dropped, object, file) < 0)
        timeline->rebuild = true;
    pthread_mutex_unlock(&timeline->lock);
}

/* Writes `logs` to the file `pending`. With `lock` held. */
static void timeline_save_pending(struct wb_timeline *timeline)
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
            logids_add(timeline->logs, entry.object, entry.file);
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

int wb_timeline_open(struct wb_store *store, wb_log_opener *open_log)
{
    struct wb_timeline *timeline = g_try_new0(struct wb_timeline, 1);

    if (!timeline)
        return -ENOMEM;
    pthread_mutex_init(&timeline->pass_lock, NULL);
    pthread_mutex_init(&timeline->lock, NULL);
    timeline->open_log = open_log;
    timeline->dir_fd = -1;
    timeline->times = timeline->moves = timeline->pending = (struct wb_array)WB_ARRAY_INIT;
    timeline->logs = logids_new();
    timeline->dropped = logids_new();
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

int wb_timeline_failure(struct wb_store *store)
{
    return store->timeline->failed;
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

/*
 * Selects the records of a log that are entries of the timeline. Logs are read backward, from their tail to the known
 * part: so the cost depends on the new records only, an ABORT is read before the record that it aborts, and it does not
 * matter if the log was rewritten meanwhile.
 */

/* The record that describes most of a change comes first: of a rename, the name that it removed. */
enum { RANK_LOSS, RANK_NAME, RANK_DATA, RANK_XATTR, RANK_ATTR, RANK_GAP, RANK_NONE };

static unsigned rank_of(const struct wb_record *record)
{
    /* Erased history is not shown; any other gap is. */
    if (record->type == WB_REC_GAP)
        return record->gap.reason == WB_GAP_ERASED ? RANK_NONE : RANK_GAP;
    /* Records without an operation, and pruned history, are not changes. */
    if (record->op == WB_OP_NONE || record->op == WB_OP_FORGET)
        return RANK_NONE;
    switch (record->type) {
    case WB_REC_NAME:
        for (uint32_t i = 0; i < record->name.count; i++)
            if (record->name.slots[i].unbind == WB_UNBIND_RENAMED)
                return RANK_LOSS;
        return RANK_NAME;
    case WB_REC_DATA:
        return RANK_DATA;
    case WB_REC_XATTR:
        return RANK_XATTR;
    case WB_REC_ATTR:
        return RANK_ATTR;
    default:
        return RANK_NONE;
    }
}

static bool has_failed(const struct wb_gathering *gathering, int64_t when)
{
    for (unsigned i = 0; i < gathering->failed_count; i++)
        if (gathering->failed[i] == when)
            return true;
    return gathering->store->inflight && wb_inflight_has(gathering->store, when);
}

static int take(struct wb_gathering *gathering, const struct wb_record *record, struct wb_object object,
                enum wb_object_file file)
{
    struct wb_times_entry entry = {record->when, object, file, record->offset, record->actor};
    unsigned rank = rank_of(record);
    int r = 0;

    if (rank != RANK_NONE && record->when > gathering->after)
        r = wb_sorter_add(&gathering->times, &entry, rank);
    /* The first PLACE of a catalog is found without an entry. */
    if (r == 0 && record->type == WB_REC_PLACE && file == WB_FILE_CATALOG && record->offset > 0 &&
        record->when > gathering->moves_after)
        r = wb_sorter_add(&gathering->moves, &entry, 0);
    return r;
}

/* *ret_held: there are records at or after the horizon. 0 or -errno; a log that does not exist has no records. */
static int gather_log(struct wb_gathering *gathering, struct wb_object object, enum wb_object_file file, bool *ret_held)
{
    const struct wb_store *store = gathering->store;
    _cleanup_close_ int fd = store->timeline->open_log(store, object, file, O_RDONLY);
    struct wb_log_skip skip = {0};
    struct wb_log_reader reader;
    struct wb_record record;
    int r = fd < 0 ? fd : wb_log_reader_init(&reader, fd);

    /* A missing log has no entries. */
    if (r == -ENOENT || (r == -EIO && wb_manifest_check(store, object, file) != 0))
        return 0;
    if (r < 0)
        return r;
    while ((r = wb_log_reader_prev_effective(&reader, &skip, &record)) == 0 || r == WB_DAMAGED) {
        if (r == WB_DAMAGED)
            continue;
        if (record.written <= gathering->after)
            break;
        if (wb_record_is_staged(&record))
            continue; /* the end of its stage is the entry */
        record.when = record.written; /* an entry has the `when` of its own record, even if that counts as one change
                                       * with others */
        if (record.when >= gathering->horizon) {
            *ret_held = true;
            continue;
        }
        r = has_failed(gathering, record.when) ? 0 : take(gathering, &record, object, file);
        if (r < 0)
            break;
    }
    wb_log_reader_deinit(&reader);
    return r < 0 && r != -EBADMSG ? r : 0;
}

/*
 * Passes: append the new records of logs in order. Also rebuilds the timeline from all logs if it is missing or
 * invalid, or from those logs that were replaced or removed (vrm).
 *
 * The order of steps makes a pass complete. The horizon is computed first: every change below it has ended, its records
 * are in their logs, and the logs were noted. Then the pass takes the notes; a thread that appends later notes again.
 * Then it reads the logs. Their records from the horizon on wait for the next pass, and their notes remain.
 */

#define BATCH 512

static void gathering_init(struct wb_gathering *gathering, struct wb_store *store, int64_t horizon)
{
    *gathering = (struct wb_gathering){.store = store, .horizon = horizon};
    wb_sorter_init(&gathering->times, false);
    wb_sorter_init(&gathering->moves, true);
}

static void gathering_deinit(struct wb_gathering *gathering)
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
    timeline->logs = logids_new();
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

        if (logids_add(timeline->logs, id->object, id->file) < 0)
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

/* Reads these logs; with `forget`, removes those without records at or above the horizon from the set. */
static int timeline_gather_logs(struct wb_timeline *timeline, struct wb_gathering *gathering, GHashTable *logs,
                                bool forget)
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
        r = gather_log(gathering, id->object, id->file, &held);
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
    GHashTable *logs, *left = logids_new();
    int64_t horizon = wb_inflight_low_water(store);
    GHashTableIter iter;
    void *key;
    int copied = 0, r;

    gathering_init(&gathering, store, horizon);
    gathering.after = timeline->times.last;
    gathering.moves_after = timeline->moves.last;
    logs = take_logs(timeline);
    g_hash_table_iter_init(&iter, logs);
    while (copied == 0 && g_hash_table_iter_next(&iter, &key, NULL))
        copied = logids_add(left, ((struct wb_logid *)key)->object, ((struct wb_logid *)key)->file);
    r = copied == 0 ? timeline_gather_logs(timeline, &gathering, logs, true) : copied;
    if (r == 0)
        r = append_new(timeline, &gathering);
    pthread_mutex_lock(&timeline->lock);
    /* If there was no copy of `logs`, none was removed from it. */
    give_back(timeline, r == 0 || copied < 0 ? logs : left);
    timeline_save_pending(timeline);
    pthread_mutex_unlock(&timeline->lock);
    gathering_deinit(&gathering);
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
    return gather_log(all->gathering, object, file, &held);
}

static int timeline_gather_all(struct wb_timeline *timeline, struct wb_gathering *gathering)
{
    struct gathering_all all = {timeline, gathering};
    int r = 0;

    for (unsigned i = 0; r == 0 && i < WB_SHARDS; i++) {
        timeline->permille = i * 1000 / WB_SHARDS;
        r = wb_shard_each(gathering->store->dir_fd, i, gather_entry, &all);
    }
    return r;
}

/*
 * Writes new arrays from the gathered entries, and the old ones except those of the logs in `without` (NULL: no old
 * ones). `named`: they replace the old arrays; else they have no names.
 */
static int timeline_write_anew(struct wb_timeline *timeline, struct wb_gathering *gathering, GHashTable *without,
                               bool named, struct wb_array *times, struct wb_array *moves)
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

/* With `lock` held. */
static void timeline_replace(struct wb_timeline *timeline, struct wb_array *times, struct wb_array *moves)
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
    timeline->dropped = logids_new();
    restricted = !timeline->rebuild && !timeline->overflow;
    timeline->rebuild |= timeline->overflow;
    timeline->overflow = false;
    /* A log that is dropped from now on, or too many notes, invalidate the result; then the rebuild is repeated. */
    pthread_mutex_unlock(&timeline->lock);

    gathering_init(&gathering, store, restricted ? timeline->times.last + 1 : horizon);
    gathering.after = gathering.moves_after = -1;
    r = restricted ? timeline_gather_logs(timeline, &gathering, dropped, false)
                   : timeline_gather_all(timeline, &gathering);
    if (r == 0)
        r = timeline_write_anew(timeline, &gathering, restricted ? dropped : NULL, true, &times, &moves);
    pthread_mutex_lock(&timeline->lock);
    if (r == 0) {
        timeline_replace(timeline, &times, &moves);
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
            if (logids_add(dropped, ((struct wb_logid *)key)->object, ((struct wb_logid *)key)->file) < 0)
                timeline->rebuild = true;
        timeline->dropped = g_hash_table_ref(dropped);
        g_hash_table_unref(newer);
    }
    timeline_save_pending(timeline);
    pthread_mutex_unlock(&timeline->lock);
    timeline->permille = 0;
    timeline->failed = r == -ECANCELED ? 0 : r;
    gathering_deinit(&gathering);
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
        r = timeline_prepare_reader(store);
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

/*
 * Readers, which do not have the lock, and so must not write. A timeline that another process maintains is used as it
 * is; work that a crash left undone is done in files without names.
 */

/* Changes of a daemon that died, of which it is not known whether they happened. */
static unsigned read_failed(struct wb_store *store, int64_t failed[WB_INFLIGHT_SLOTS])
{
    _cleanup_close_ int fd = wb_open_own(store->dir_fd, WB_INFLIGHT_NAME, O_RDONLY, 0);
    uint64_t slots[WB_INFLIGHT_SLOTS][WB_INFLIGHT_SLOT / 8];
    unsigned count = 0;

    if (fd < 0 || wb_pread_exact(fd, slots, sizeof(slots), WB_INFLIGHT_HEAD) < 0)
        return 0;
    for (unsigned i = 0; i < WB_INFLIGHT_SLOTS; i++)
        if (slots[i][0] != 0)
            failed[count++] = (int64_t)le64toh(slots[i][1]);
    return count;
}

static int open_as_reader(struct wb_timeline *timeline, GHashTable *pending)
{
    struct wb_array notes = WB_ARRAY_INIT;
    struct wb_times_entry entry;
    int r = wb_array_open(&timeline->times, timeline->dir_fd, "times", false);

    if (r == 0)
        r = wb_array_open(&timeline->moves, timeline->dir_fd, "moves", false);
    if (r == 0)
        r = wb_array_open(&notes, timeline->dir_fd, "pending", false);
    for (uint64_t i = 0; r == 0 && i < notes.count; i++) {
        r = wb_array_read(notes.fd, i, &entry, 1);
        if (r == 0)
            r = logids_add(pending, entry.object, entry.file);
    }
    wb_array_close(&notes);
    return r;
}

static void look_at_sizes(struct wb_timeline *timeline, off_t sizes[2])
{
    static const char *const names[] = {"times", "pending"};
    struct stat st;

    for (unsigned i = 0; i < 2; i++)
        sizes[i] = timeline->dir_fd >= 0 && fstatat(timeline->dir_fd, names[i], &st, 0) == 0 ? st.st_size : -1;
}

static int timeline_prepare_reader(struct wb_store *store)
{
    struct wb_timeline *timeline = store->timeline;
    struct wb_array times = WB_ARRAY_INIT, moves = WB_ARRAY_INIT;
    int64_t failed[WB_INFLIGHT_SLOTS];
    GHashTable *pending;
    struct wb_gathering gathering;
    off_t sizes[2];
    bool whole;
    int r;

    if (timeline->dir_fd < 0)
        timeline->dir_fd =
            openat(store->dir_fd, WB_TIMELINE_NAME, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    look_at_sizes(timeline, sizes);
    if (timeline->prepared && sizes[0] == timeline->seen[0] && sizes[1] == timeline->seen[1])
        return 0;
    pthread_mutex_lock(&timeline->lock);
    timeline->prepared = false;
    timeline_replace(timeline, &times, &moves);
    pthread_mutex_unlock(&timeline->lock);

    pending = logids_new();
    gathering_init(&gathering, store, INT64_MAX);
    gathering.failed = failed;
    gathering.failed_count = read_failed(store, failed);
    r = timeline->dir_fd < 0 ? -ENOENT : open_as_reader(timeline, pending);
    whole = r == 0;
    gathering.after = gathering.moves_after = -1;
    if (whole) {
        gathering.after = timeline->times.last;
        gathering.moves_after = timeline->moves.last;
        r = timeline_gather_logs(timeline, &gathering, pending, false);
    } else {
        r = timeline_gather_all(timeline, &gathering);
    }
    g_hash_table_remove_all(pending);
    if (r == 0 && (!whole || gathering.times.used > 0 || gathering.times.written > 0))
        r = timeline_write_anew(timeline, &gathering, whole ? pending : NULL, false, &times, &moves);
    pthread_mutex_lock(&timeline->lock);
    if (r == 0 && times.fd >= 0)
        timeline_replace(timeline, &times, &moves);
    timeline->prepared = r == 0;
    timeline->seen[0] = sizes[0];
    timeline->seen[1] = sizes[1];
    pthread_mutex_unlock(&timeline->lock);
    gathering_deinit(&gathering);
    g_hash_table_unref(pending);
    return r;
}
