/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Flushes users' content to the disk. A file that is changed in place during the flush may have new bytes on the disk
 * before their record, and before any metadata that would reveal it. So the files that were changed in that way lately,
 * and not synced since, are listed durably before the flush, and removed from the list after it. The flush also writes
 * files that were clean when it began: one that is changed during it is added to the list first. If the power fails in
 * between, it is not known what changed in the listed files, and each gets a GAP that says so.
 */
#include "store/inflight/lost_content.h"
#include "store/inflight/stages.h"
#include "store/parts.h"
#include "store/timeline/timeline.h"

#include "base/cleanup.h"
#include "base/io.h"
#include "format/object_key.h"
#include "time/ctime_clock.h"
#include "wayback/when.h"
#include <errno.h>
#include <fcntl.h>
#include <glib.h>
#include <unistd.h>

static int write_list(struct wb_store *store, GHashTable *objects)
{
    size_t length = (size_t)g_hash_table_size(objects) * WB_GAP_SIZE, at = 0;
    g_autofree uint8_t *data = g_try_malloc(length);
    GHashTableIter iter;
    void *object;
    int r = data ? wb_writeback_open(store, true) : -ENOMEM;

    if (r < 0)
        return r;
    g_hash_table_iter_init(&iter, objects);
    for (; g_hash_table_iter_next(&iter, &object, NULL); at += WB_GAP_SIZE)
        wb_gap_encode(&(struct wb_open_gap){*(struct wb_object *)object, WB_WRITEBACK_CONTENT, WB_FILE_UNDO},
                      data + at);
    r = wb_pwrite_full(store->settling_fd, data, length, WB_WRITEBACK_LIST);
    store->list_end = WB_WRITEBACK_LIST + length;
    /* It is later than this power cut: the time of modification is that of `inflight` until there is another. */
    if (r == 0)
        r = wb_log_set_mtime(store->settling_fd, store->stamps.cut);
    return r == 0 && fsync(store->settling_fd) < 0 ? -errno : r;
}

/* During a flush, with `listing` held. */
static int write_place(struct wb_store *store, struct wb_object object)
{
    uint8_t place[WB_GAP_SIZE];
    int r = wb_writeback_open(store, true);

    if (r < 0)
        return r;
    wb_gap_encode(&(struct wb_open_gap){object, WB_WRITEBACK_CONTENT, WB_FILE_UNDO}, place);
    r = wb_pwrite_full(store->settling_fd, place, sizeof(place), store->list_end);
    if (r == 0)
        r = wb_log_set_mtime(store->settling_fd, store->stamps.cut);
    if (r == 0 && fsync(store->settling_fd) < 0)
        r = -errno;
    if (r == 0)
        store->list_end += sizeof(place);
    return r;
}

/*
 * Whether the power failed since the list was written. Not whether this opening is the first after that: that one may
 * have ended before it came to the list.
 */
static bool is_of_a_cut(struct wb_store *store)
{
    struct stat st;

    return wb_inflight_lost_power(store) || fstat(store->settling_fd, &st) < 0 ||
           st.st_mtim.tv_sec * WB_WHEN_SECOND + st.st_mtim.tv_nsec < store->stamps.cut;
}

/* The note before the list is independent of it (log_mtime.c). */
static void strike_out(struct wb_store *store)
{
    /* If this fails, a power cut may cause needless gaps. */
    if (ftruncate(store->settling_fd, WB_WRITEBACK_LIST) < 0 || fdatasync(store->settling_fd) < 0)
        errno = 0;
}

/* *ret_more: some were not in the set yet. */
static int take_in(struct wb_store *store, GHashTable *objects, bool *ret_more)
{
    struct wb_closed_logs taken;
    int r = wb_log_cache_take_overwritten(store->logs, &taken);

    *ret_more = false;
    pthread_mutex_lock(&store->listed);
    for (size_t i = 0; i < taken.count; i++)
        *ret_more |= g_hash_table_add(objects, g_memdup2(&taken.items[i].object, sizeof(struct wb_object)));
    pthread_mutex_unlock(&store->listed);
    wb_closed_logs_clear(&taken);
    return r;
}

static bool lacks_space(int r)
{
    return r == -ENOSPC || r == -EDQUOT;
}

/* 0 if there is no space for it, and then nothing is listed. */
static int list_all(struct wb_store *store, GHashTable *objects)
{
    int r = g_hash_table_size(objects) > 0 ? write_list(store, objects) : 0;

    pthread_mutex_lock(&store->listed);
    store->list_lacks_space = lacks_space(r);
    pthread_mutex_unlock(&store->listed);
    return lacks_space(r) ? 0 : r;
}

/* Lists the files that may get more records, and syncs all records. */
static int announce(struct wb_store *store, GHashTable *objects)
{
    bool more;
    int r = take_in(store, objects, &more);

    store->list_end = WB_WRITEBACK_LIST;
    if (r == 0)
        r = list_all(store, objects);
    if (r == 0 && g_hash_table_size(objects) > 0)
        r = wb_store_sync_all(store);
    return r;
}

/*
 * From now on, a thread that overwrites a file adds it to the list (wb_store_before_overwrite). One that came too early
 * to see that has marked the log before, and it is taken in here.
 */
static int begin_flush(struct wb_store *store, GHashTable *objects)
{
    bool more;
    int r;

    pthread_mutex_lock(&store->listing);
    atomic_store(&store->flushing, true);
    r = take_in(store, objects, &more);
    if (r == 0 && more)
        r = list_all(store, objects);
    pthread_mutex_unlock(&store->listing);
    return r;
}

static void end_flush(struct wb_store *store)
{
    pthread_mutex_lock(&store->listing);
    atomic_store(&store->flushing, false);
    store->listed_late_count = 0;
    pthread_mutex_unlock(&store->listing);
}

/* Its place in the list is on the disk, or the flush does not begin before it is. */
static bool is_listed(struct wb_store *store, struct wb_object object)
{
    bool found;

    pthread_mutex_lock(&store->listed);
    found = !store->list_lacks_space && g_hash_table_contains(store->unsettled, &object);
    for (unsigned i = 0; !found && i < store->listed_late_count; i++)
        found = wb_object_equal(store->listed_late[i], object);
    pthread_mutex_unlock(&store->listed);
    return found;
}

/* With `listing` held. */
static int list_late(struct wb_store *store, struct wb_object object)
{
    int r;

    if (!atomic_load(&store->flushing) || is_listed(store, object))
        return 0;
    if (store->listed_late_count == G_N_ELEMENTS(store->listed_late))
        return -ENOSPC;
    r = write_place(store, object);
    if (r < 0)
        return r;
    pthread_mutex_lock(&store->listed);
    store->listed_late[store->listed_late_count++] = object;
    pthread_mutex_unlock(&store->listed);
    return 0;
}

int wb_store_before_overwrite(struct wb_store *store, struct wb_object object)
{
    int r;

    if (!atomic_load(&store->flushing) || is_listed(store, object))
        return 0;
    pthread_mutex_lock(&store->listing);
    r = list_late(store, object);
    pthread_mutex_unlock(&store->listing);
    return r < 0 ? wb_store_sync_log(store, object, WB_FILE_UNDO) : 0;
}

static int sync_fs(struct wb_store *store, int fd)
{
    int r = wb_stages_sync_begin(store);

    if (r == 0 && syncfs(fd) < 0)
        r = -errno;
    wb_stages_sync_end(store);
    return r;
}

int wb_store_sync_content(struct wb_store *store)
{
    int64_t begun = wb_ctime_clock() - 1;
    GHashTable *objects;
    int r;

    pthread_mutex_lock(&store->settling);
    if (!store->unsettled)
        store->unsettled = g_hash_table_new_full(wb_object_hash, wb_object_is_key, g_free, NULL);
    objects = store->unsettled;
    r = announce(store, objects);
    if (r == 0)
        r = begin_flush(store, objects);
    if (r == 0)
        r = sync_fs(store, store->src_fd);
    end_flush(store);
    /* Bytes that were written meanwhile may have their record in a log that was clean at the beginning. */
    if (r == 0)
        r = wb_store_sync_all(store);
    if (r == 0 && store->list_end > WB_WRITEBACK_LIST)
        strike_out(store);
    /* Data that this flush could not write will not be written by the next one. */
    if (r == 0) {
        pthread_mutex_lock(&store->listed);
        g_hash_table_remove_all(objects);
        pthread_mutex_unlock(&store->listed);
        wb_lost_content_synced(store, begun);
    }
    pthread_mutex_unlock(&store->settling);
    return r;
}

void wb_store_note_clean(struct wb_store *store, struct wb_object object)
{
    struct wb_log *log;

    if (wb_store_get_log(store, object, WB_FILE_UNDO, false, &log) < 0)
        return;
    pthread_mutex_lock(&log->lock);
    if (log->synced == log->tail)
        __atomic_store_n(&log->overwrites, false, __ATOMIC_RELAXED);
    pthread_mutex_unlock(&log->lock);
    wb_store_put_log(store, log);
}

int wb_store_before_truncate(struct wb_store *store, struct wb_object object)
{
    struct wb_log *log;
    bool overwrites;

    if (!store->truncate_writes || wb_store_get_log(store, object, WB_FILE_UNDO, false, &log) < 0)
        return 0;
    overwrites = __atomic_load_n(&log->overwrites, __ATOMIC_RELAXED);
    wb_store_put_log(store, log);
    return overwrites ? wb_store_sync_log(store, object, WB_FILE_UNDO) : 0;
}

static void record_lost_tail(struct wb_store *store, const struct wb_open_gap *place)
{
    struct wb_log *log;

    if (wb_store_get_log(store, place->object, place->file, true, &log) < 0)
        return;
    pthread_mutex_lock(&log->lock);
    if (wb_log_record_lost_tail(store, log, log->last_when) == 0)
        wb_timeline_note(store, log, place->object, place->file);
    pthread_mutex_unlock(&log->lock);
    wb_store_sync_log(store, place->object, place->file);
    wb_store_put_log(store, log);
}

/* The entry where an older program began its list. Writes only if there is one: a full disk may have no space for a
 * write. */
static void strike_out_first(struct wb_store *store)
{
    static const uint8_t none[WB_GAP_SIZE];
    uint8_t data[WB_GAP_SIZE];

    if (wb_pread_exact(store->settling_fd, data, sizeof(data), WB_WRITEBACK_NOTE) == 0 &&
        !wb_is_zero(data, sizeof(data)))
        (void)wb_pwrite_full(store->settling_fd, none, sizeof(none), WB_WRITEBACK_NOTE);
}

int wb_writeback_recover(struct wb_store *store)
{
    struct wb_open_gap place;
    uint8_t data[WB_GAP_SIZE];
    size_t length = 0;
    bool of_a_cut;
    int r = 0;

    r = wb_writeback_open(store, false);
    if (r < 0)
        return r == -ENOENT || r == -ENOSPC || r == -EDQUOT ? 0 : r;
    of_a_cut = is_of_a_cut(store);
    for (uint64_t at = WB_WRITEBACK_NOTE; of_a_cut; at += WB_GAP_SIZE) {
        r = wb_pread_full(store->settling_fd, data, sizeof(data), at, &length);
        if (r < 0 || length < sizeof(data))
            break;
        if (wb_gap_decode(data, &place) == 0 && place.since != WB_WRITEBACK_STAMP)
            record_lost_tail(store, &place);
    }
    /* If that log cannot be written, the note remains, and so does its reason. */
    if (!wb_object_is_none(store->mtime_untrusted))
        (void)wb_log_mtime_resume(store);
    else
        strike_out_first(store);
    strike_out(store);
    return r;
}
