/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * A log whose modification time is temporarily invalid.
 *
 * Code that changes bytes of a log in place also changes the log's time, and can only restore it afterwards. If a power
 * cut comes in between, the time is later than the newest record, which is the sign of lost records (tail_loss.c). So
 * such a log is noted before, durably, and a process that finds the note ignores the log's time. It does not need that
 * time: a record that is appended meanwhile is synced before its change is made, and so were all records before the
 * note. The note is removed when the restored time is on the disk.
 *
 * The note is the first entry of the file `settling`, which each program that opens the store for writing empties: so
 * the note always belongs to the last one, however long ago that was.
 *
 * There is space for one note. If it cannot be removed, because its log cannot be read or written any more, no other
 * log is changed in place: a power cut would make the whole past of that log unknown for lack of a note, or the whole
 * past of the first, if its note were replaced. The next caller first tries to remove it, which succeeds as soon as its
 * log can be written, was rewritten, or does not exist any more. Meanwhile, logs that can be rewritten elsewhere,
 * because there is space for it, are pruned in that way.
 */
#include "store/parts.h"

#include "base/cleanup.h"
#include "base/io.h"
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

int wb_writeback_open(struct wb_store *store, bool make)
{
    uint8_t data[WB_WRITEBACK_LIST] = {0};
    _cleanup_close_ int fd = -1;
    struct stat st;
    int r = 0;

    if (store->settling_fd >= 0)
        return 0;
    fd = wb_open_own_stat(store->dir_fd, WB_WRITEBACK_NAME, O_RDWR | (make ? O_CREAT : 0), 0600, &st);
    if (fd < 0)
        return fd;
    wb_gap_encode_head(data);
    if (st.st_size < WB_WRITEBACK_LIST)
        r = wb_pwrite_full(fd, data, sizeof(data), 0);
    if (r == 0 && fdatasync(fd) < 0)
        r = -errno;
    if (r == 0)
        r = wb_fsync_dir(store->dir_fd);
    if (r == 0)
        __atomic_store_n(&store->settling_fd, wb_steal_fd(&fd), __ATOMIC_RELEASE);
    return r;
}

static int open_file(struct wb_store *store)
{
    int r;

    if (__atomic_load_n(&store->settling_fd, __ATOMIC_ACQUIRE) >= 0)
        return 0;
    pthread_mutex_lock(&store->settling);
    r = wb_writeback_open(store, true);
    pthread_mutex_unlock(&store->settling);
    return r;
}

/* Head and note are one write within a sector: a power cut leaves either the old note or the new one. */
static int write_note(struct wb_store *store, const struct wb_object *object)
{
    uint8_t data[WB_WRITEBACK_LIST] = {0};
    int r;

    wb_gap_encode_head(data);
    if (object)
        wb_gap_encode(&(struct wb_open_gap){*object, WB_WRITEBACK_STAMP, WB_FILE_UNDO}, data + WB_WRITEBACK_NOTE);
    r = wb_pwrite_full(store->settling_fd, data, sizeof(data), 0);
    return r == 0 && fdatasync(store->settling_fd) < 0 ? -errno : r;
}

int wb_log_mtime_prepare(struct wb_store *store)
{
    return open_file(store);
}

int wb_log_mtime_suspend(struct wb_store *store, struct wb_object object)
{
    struct wb_log *log;
    int r = open_file(store);

    /* Removes the note of a log for which that failed before. */
    if (r == 0)
        r = wb_log_mtime_resume(store);
    if (r == 0)
        r = wb_store_get_log(store, object, WB_FILE_UNDO, false, &log);
    if (r < 0)
        return r;
    wb_store_set_mtime_untrusted(store, object);
    pthread_mutex_lock(&log->lock);
    log->mtime_untrusted = true;
    pthread_mutex_unlock(&log->lock);
    r = wb_store_sync_log(store, object, WB_FILE_UNDO);
    if (r == 0)
        r = write_note(store, &object);
    /* It may be on the disk in spite of the error. */
    if (r < 0)
        (void)wb_log_mtime_resume(store);
    wb_store_put_log(store, log);
    return r;
}

/* With the log's lock: otherwise another thread could append to it, which changes its time, before that is on the
 * disk. */
static int resume_locked(struct wb_store *store, struct wb_log *log)
{
    int r = wb_log_set_mtime(log->fd, log->last_when);

    if (r == 0 && fsync(log->fd) < 0)
        r = -errno;
    if (r == 0)
        r = write_note(store, NULL);
    log->mtime_untrusted = r < 0;
    return r;
}

int wb_log_mtime_resume(struct wb_store *store)
{
    struct wb_log *log = NULL;
    int r;

    if (wb_object_is_none(store->mtime_untrusted))
        return 0;
    /* Before the log's lock is taken: its holder must not wait for a thread that flushes content. */
    r = open_file(store);
    if (r == 0)
        r = wb_store_get_log(store, store->mtime_untrusted, WB_FILE_UNDO, false, &log);
    if (r < 0 && r != -ENOENT)
        return r;
    if (log)
        pthread_mutex_lock(&log->lock);
    r = log ? resume_locked(store, log) : write_note(store, NULL);
    if (r == 0)
        wb_store_set_mtime_untrusted(store, WB_OBJECT_NONE);
    if (log)
        pthread_mutex_unlock(&log->lock);
    wb_store_put_log(store, log);
    return r;
}
