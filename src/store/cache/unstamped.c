/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * A log of which the time of modification tells nothing for a while.
 *
 * Whoever changes bytes of a log in their place moves its time, and can only set it back afterwards. Where a power cut
 * comes in between, the time is later than the newest record, which is what tells of records that were lost
 * (log_cut.c). So such a log is noted before, durably, and nobody who finds the note asks its time. He need not: a
 * record that is appended meanwhile is brought to the disk before its change is made, and so were all before the note.
 * It goes when the time that was set back is on the disk.
 *
 * The note is the first place in the file `settling`, which each program that opens the store for writing empties:
 * so it is of the last one, however old the next one is.
 *
 * There is room for one. Where it cannot be taken away, since its log can be read or written no more, no other log is
 * changed in its place: a power cut would take all the past of that one for want of a note, or all the past of the
 * first, if its note gave way. Whoever comes next tries first to take it away, which succeeds as soon as its log can be
 * written, was written anew, or is no more. What there is room for beside is forgotten in that way meanwhile.
 */
#include "store/parts.h"

#include "base/cleanup.h"
#include "base/io.h"
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

bool wb_store_is_unstamped(const struct wb_store *store, struct wb_object object, enum wb_object_file file)
{
    pthread_mutex_t *lock = &((struct wb_store *)store)->unstamping;
    bool found;

    pthread_mutex_lock(lock);
    found = file == WB_FILE_UNDO && !wb_object_is_none(object) && wb_object_equal(object, store->unstamped);
    pthread_mutex_unlock(lock);
    return found;
}

static void set_unstamped(struct wb_store *store, struct wb_object object)
{
    pthread_mutex_lock(&store->unstamping);
    store->unstamped = object;
    pthread_mutex_unlock(&store->unstamping);
}

void wb_stamp_look(struct wb_store *store)
{
    _cleanup_close_ int fd = wb_open_own(store->dir_fd, WB_SETTLING_NAME, O_RDONLY, 0);
    uint8_t data[WB_GAP_SIZE];
    struct wb_open_gap note;

    if (fd >= 0 && wb_pread_exact(fd, data, sizeof(data), WB_SETTLING_NOTE) == 0 &&
        wb_gap_decode(data, &note) == 0 && note.since == WB_SETTLING_STAMP && note.file == WB_FILE_UNDO)
        set_unstamped(store, note.object);
}

static int open_file(struct wb_store *store)
{
    int r;

    if (__atomic_load_n(&store->settling_fd, __ATOMIC_ACQUIRE) >= 0)
        return 0;
    pthread_mutex_lock(&store->settling);
    r = wb_settling_open(store, true);
    pthread_mutex_unlock(&store->settling);
    return r;
}

/* Head and note are one write to a part of a sector: a power cut leaves the one note or the other. */
static int write_note(struct wb_store *store, const struct wb_object *object)
{
    uint8_t data[WB_SETTLING_LIST] = {0};
    int r;

    wb_gap_encode_head(data);
    if (object)
        wb_gap_encode(&(struct wb_open_gap){*object, WB_SETTLING_STAMP, WB_FILE_UNDO}, data + WB_SETTLING_NOTE);
    r = wb_pwrite_full(store->settling_fd, data, sizeof(data), 0);
    return r == 0 && fdatasync(store->settling_fd) < 0 ? -errno : r;
}

int wb_stamp_prepare(struct wb_store *store)
{
    return open_file(store);
}

int wb_stamp_suspend(struct wb_store *store, struct wb_object object)
{
    struct wb_log *log;
    int r = open_file(store);

    /* Of one where that failed. */
    if (r == 0)
        r = wb_stamp_resume(store);
    if (r == 0)
        r = wb_store_get_log(store, object, WB_FILE_UNDO, false, &log);
    if (r < 0)
        return r;
    set_unstamped(store, object);
    pthread_mutex_lock(&log->lock);
    log->unstamped = true;
    pthread_mutex_unlock(&log->lock);
    r = wb_store_sync_log(store, object, WB_FILE_UNDO);
    if (r == 0)
        r = write_note(store, &object);
    /* It may be on the disk all the same. */
    if (r < 0)
        (void)wb_stamp_resume(store);
    wb_store_put_log(store, log);
    return r;
}

/* With the log's lock, or there would be appended to it, which moves its time, before that is on the disk. */
static int resume_locked(struct wb_store *store, struct wb_log *log)
{
    int r = wb_log_stamp(log->fd, log->last_when);

    if (r == 0 && fsync(log->fd) < 0)
        r = -errno;
    if (r == 0)
        r = write_note(store, NULL);
    log->unstamped = r < 0;
    return r;
}

int wb_stamp_resume(struct wb_store *store)
{
    struct wb_log *log = NULL;
    int r;

    if (wb_object_is_none(store->unstamped))
        return 0;
    /* With the log's lock, nobody would wait for who brings content to the disk. */
    r = open_file(store);
    if (r == 0)
        r = wb_store_get_log(store, store->unstamped, WB_FILE_UNDO, false, &log);
    if (r < 0 && r != -ENOENT)
        return r;
    if (log)
        pthread_mutex_lock(&log->lock);
    r = log ? resume_locked(store, log) : write_note(store, NULL);
    if (r == 0)
        set_unstamped(store, WB_OBJECT_NONE);
    if (log)
        pthread_mutex_unlock(&log->lock);
    wb_store_put_log(store, log);
    return r;
}
