/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Syncs logs to stable storage, before the changes they describe. */
#include "store/inflight/spans.h"
#include "store/inflight/stages.h"
#include "store/parts.h"
#include "store/tables/manifest.h"

#include "base/cleanup.h"
#include "base/io.h"
#include <errno.h>
#include <fcntl.h>
#include <glib.h>
#include <string.h>
#include <unistd.h>

/* Records refer to cloned before-images, so the images are made durable first. */
static int sync_images(struct wb_store *store, struct wb_object object)
{
    _cleanup_close_ int fd = wb_store_open_file(store, object, WB_FILE_IMAGE, O_RDONLY);
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
    struct wb_closed_logs closed = wb_log_cache_take_closed(store->logs);
    int fds[CLOSED_AT_ONCE];

    for (size_t begin = 0; begin < closed.count; begin += CLOSED_AT_ONCE) {
        size_t count = MIN(closed.count - begin, CLOSED_AT_ONCE);

        for (size_t i = 0; i < count; i++) {
            const struct wb_closed_log *log = &closed.items[begin + i];

            fds[i] = wb_store_open_file(store, log->object, log->file, O_RDONLY | O_CLOEXEC);
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

    if (!store->logs || !wb_log_cache_begin_round(store->logs))
        return;
    logs = wb_log_cache_take_dirty(store->logs);
    for (struct wb_log *log = logs; log; log = log->taken)
        sync_file_range(log->fd, 0, 0, SYNC_FILE_RANGE_WRITE);
    for (struct wb_log *log = logs; log; log = log->taken)
        sync_file_range(log->fd, 0, 0, WHOLE);
    wb_log_cache_put_dirty(store->logs, logs);
    write_closed(store);
    wb_log_cache_end_round(store->logs);
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
    /* A change in this same tick may be made after this. */
    int64_t begun = wb_spans_clock() - 1;
    int r;

    if (!store->writable)
        return wb_store_sync_common(store);
    r = wb_stages_sync_begin(store);
    if (r == 0)
        r = sync_all(store);
    wb_stages_sync_end(store);
    if (r == 0)
        wb_spans_synced(store, begun);
    return r;
}

int wb_store_sync_listed(struct wb_store *store)
{
    int r;

    wb_manifest_capture(store);
    r = wb_store_sync_all(store);
    if (r == 0)
        wb_manifest_write(store);
    return r;
}
