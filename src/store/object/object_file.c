/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Opens files of objects. A log is first compared with the manifest, so that a log that was cut off or deleted does not
 * look like one that was never written. wb_store_tail_is_lost also examines the other sign of lost records, the time of
 * modification of the log (tail_loss.c).
 */
#include "store/parts.h"

#include "base/cleanup.h"
#include "store/directory/shard.h"
#include "store/tables/manifest.h"
#include "wayback/when.h"
#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>

/* For a process that only reads the store: finds the last record itself. */
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
    return r < 0 ? r : wb_log_is_short(store, stamp, r == 0 ? record.when : 0);
}

/* By the times of modification of logs. WB_TAIL_* or -errno. */
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

/* By the manifest. WB_TAIL_* or -errno. A writer opens the log, which records the loss as a GAP. */
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
    /* A reader may use the remaining records of a damaged log: it also calls wb_store_tail_is_lost. */
    if (r == WB_TAIL_DAMAGED)
        return fd == -ENOENT ? -EIO : fd;
    if (store->logs && wb_store_has_log((struct wb_store *)store, object, file) == (fd >= 0))
        wb_log_cache_note_checked(store->logs, object, file, fd >= 0);
    return fd;
}
