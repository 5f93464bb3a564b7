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
#include "wayback/when.h"
#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>

static bool is_short(const struct wb_store *store, int64_t stamp, int64_t last_when)
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
    log->tail_is_lost = !log->mtime_untrusted && is_short(store, log->stamp, log->last_when);
    log->damaged_tail = wb_manifest_log_opened(store, log, object, file) && !log->tail_is_lost;
    log->tail_is_lost |= log->damaged_tail;
    if (!log->tail_is_lost || (file == WB_FILE_CATALOG && log->tail == 0))
        return 0;
    r = wb_log_record_lost_tail(store, log, log->damaged_tail && has_place_only(log) ? 0 : log->last_when);
    if (r == 0)
        wb_timeline_note(store, log, object, file);
    return r < 0 ? r : wb_manifest_log_mended(store, log, object, file);
}

/* For readers. */
static int look_from_outside(int fd, const struct wb_store *store, int64_t stamp)
{
    struct wb_log_reader reader;
    struct wb_record record;
    int r = wb_log_reader_init(&reader, fd);

    if (r < 0)
        return r;
    while ((r = wb_log_reader_prev(&reader, &record)) == WB_DAMAGED)
        ;
    wb_log_reader_deinit(&reader);
    return r < 0 ? r : is_short(store, stamp, r == 0 ? record.when : 0);
}

/* By the stamps. */
static int look_for_cut(const struct wb_store *store, struct wb_object object, enum wb_object_file file)
{
    _cleanup_close_ int fd = -1;
    struct wb_log *log;
    struct stat st;
    int64_t stamp;
    int r;

    if (store->stamps.cut == 0 || wb_store_is_mtime_untrusted(store, object, file))
        return WB_TAIL_SOUND;
    fd = wb_store_open_file_as_is(store, object, file, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return fd == -ENOENT ? 0 : fd;
    if (fstat(fd, &st) < 0)
        return -errno;
    stamp = st.st_mtim.tv_sec * WB_WHEN_SECOND + st.st_mtim.tv_nsec;
    if (stamp < store->stamps.since || stamp >= store->stamps.cut)
        return WB_TAIL_SOUND;
    if (!store->logs)
        return look_from_outside(fd, store, stamp);
    /* The store is const for readers of history; opening a log does not change the past that it describes. */
    r = wb_store_get_log((struct wb_store *)store, object, file, false, &log);
    if (r < 0)
        return r == -ENOENT ? 0 : r;
    r = log->tail_is_lost ? WB_TAIL_CUT : WB_TAIL_SOUND;
    wb_store_put_log((struct wb_store *)store, log);
    return r;
}

/* By the manifest. If the log was opened for writing, a GAP says what is missing. */
static int look_for_damage(const struct wb_store *store, struct wb_object object, enum wb_object_file file)
{
    struct wb_log *log;
    int r;

    if (!store->header.manifest || (store->logs && wb_log_cache_was_checked(store->logs, object, file)))
        return WB_TAIL_SOUND;
    r = wb_manifest_check(store, object, file);
    if (r <= 0 || !store->logs)
        return r > 0 ? WB_TAIL_DAMAGED : r;
    /* A catalog is only created together with a PLACE (capture/place.c). */
    r = wb_store_get_log((struct wb_store *)store, object, file, file == WB_FILE_UNDO, &log);
    if (r < 0)
        return r == -ENOENT ? WB_TAIL_DAMAGED : r;
    r = log->tail_is_lost ? WB_TAIL_DAMAGED : WB_TAIL_SOUND;
    wb_store_put_log((struct wb_store *)store, log);
    return r;
}

int wb_store_tail_is_lost(const struct wb_store *store, struct wb_object object, enum wb_object_file file)
{
    int r = look_for_cut(store, object, file);

    return r != WB_TAIL_SOUND ? r : look_for_damage(store, object, file);
}

int wb_store_open_file(const struct wb_store *store, struct wb_object object, enum wb_object_file file, int flags)
{
    int fd, r;

    if (file > WB_FILE_CATALOG || !store->header.manifest)
        return wb_store_open_file_as_is(store, object, file, flags);
    if (store->logs && wb_log_cache_was_checked(store->logs, object, file))
        return wb_store_open_file_as_is(store, object, file, flags);
    r = look_for_damage(store, object, file);
    if (r < 0)
        return r == -EBADMSG || r == -EAGAIN ? -EIO : r;
    if (r == WB_TAIL_DAMAGED && store->logs)
        return -EIO;
    fd = wb_store_open_file_as_is(store, object, file, flags);
    /* Code that reads the rest of a log also calls wb_store_tail_is_lost. */
    if (r == WB_TAIL_DAMAGED)
        return fd == -ENOENT ? -EIO : fd;
    if (store->logs && wb_store_has_log((struct wb_store *)store, object, file) == (fd >= 0))
        wb_log_cache_note_checked(store->logs, object, file, fd >= 0);
    return fd;
}
