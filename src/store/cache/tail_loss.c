/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Losses in a power cut: the last records of a log may not have reached the disk, though the changes they describe did.
 * The modification time of the log's file shows it (wb_log_set_mtime): it is metadata, which reaches the disk in order.
 * Logs are checked when they are opened, since a mount must not take time in proportion to the history.
 */
#include "store/parts.h"
#include "store/tables/manifest.h"
#include "store/timeline/timeline.h"

#include "base/cleanup.h"
#include "base/io.h"
#include "wayback/when.h"
#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>

/* ---- logs whose mtime proves nothing (log_mtime.c) ------------------------------------------- */

bool wb_store_is_mtime_untrusted(const struct wb_store *store, struct wb_object object, enum wb_object_file file)
{
    pthread_mutex_t *lock = &((struct wb_store *)store)->unstamping;
    bool found;

    pthread_mutex_lock(lock);
    found = file == WB_FILE_UNDO && !wb_object_is_none(object) && wb_object_equal(object, store->mtime_untrusted);
    pthread_mutex_unlock(lock);
    return found;
}

void wb_store_set_mtime_untrusted(struct wb_store *store, struct wb_object object)
{
    pthread_mutex_lock(&store->unstamping);
    store->mtime_untrusted = object;
    pthread_mutex_unlock(&store->unstamping);
}

void wb_log_mtime_check(struct wb_store *store)
{
    _cleanup_close_ int fd = wb_open_own(store->dir_fd, WB_WRITEBACK_NAME, O_RDONLY, 0);
    uint8_t data[WB_GAP_SIZE];
    struct wb_open_gap note;

    if (fd >= 0 && wb_pread_exact(fd, data, sizeof(data), WB_WRITEBACK_NOTE) == 0 && wb_gap_decode(data, &note) == 0 &&
        note.since == WB_WRITEBACK_STAMP && note.file == WB_FILE_UNDO)
        wb_store_set_mtime_untrusted(store, note.object);
}

/* ---- a log that was just opened --------------------------------------------------------------- */

bool wb_log_is_short(const struct wb_store *store, int64_t stamp, int64_t last_when)
{
    return stamp > last_when && stamp >= store->stamps.since && stamp < store->stamps.cut;
}

int wb_log_record_lost_tail(struct wb_store *store, struct wb_log *log, int64_t since)
{
    struct wb_record record = {
        .type = WB_REC_GAP, .gap = {since, log->damaged_tail ? WB_GAP_DAMAGE : WB_GAP_POWER}};
    int r;

    record.when = wb_store_tick(store);
    /* The log has not changed since the store was opened after the cut, or the loss would have been detected then. */
    if (record.gap.reason == WB_GAP_POWER && store->stamps.cut > since && store->stamps.cut <= record.when)
        record.gap.until = store->stamps.cut;
    r = wb_log_append_locked(log, &record, NULL, 0);
    if (r == 0)
        log->tail_is_lost = false;
    return r;
}

/* A catalog that has only its PLACE: it may have been created anew for a lost one, whose records were all older. */
static bool has_place_only(const struct wb_log *log)
{
    struct wb_log_reader reader;
    struct wb_record record;
    bool only;

    if (wb_log_reader_init(&reader, log->fd) < 0)
        return true;
    only = wb_log_reader_prev(&reader, &record) != 0 || (record.type == WB_REC_PLACE && record.offset == 0);
    wb_log_reader_deinit(&reader);
    return only;
}

/*
 * Records the loss before anything else is appended, since that would destroy the evidence. A catalog has to begin with
 * a PLACE: the code that writes it (capture/place.c) records the loss then.
 */
int wb_log_look_for_lost_tail(struct wb_store *store, struct wb_log *log, struct wb_object object,
                              enum wb_object_file file)
{
    int r;

    log->mtime_untrusted = wb_store_is_mtime_untrusted(store, object, file);
    log->tail_is_lost = !log->mtime_untrusted && wb_log_is_short(store, log->stamp, log->last_when);
    log->damaged_tail = wb_manifest_log_opened(store, log, object, file) && !log->tail_is_lost;
    log->tail_is_lost |= log->damaged_tail;
    if (!log->tail_is_lost || (file == WB_FILE_CATALOG && log->tail == 0))
        return 0;
    r = wb_log_record_lost_tail(store, log, log->damaged_tail && has_place_only(log) ? 0 : log->last_when);
    if (r == 0)
        wb_timeline_note(store, log, object, file);
    return r < 0 ? r : wb_manifest_log_mended(store, log, object, file);
}
