/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "maintain/rewrite/rewrite.h"

#include "base/io.h"
#include <errno.h>
#include <glib.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

static int name(struct wb_rewrite *rewrite, struct wb_store *store, struct wb_object object, enum wb_object_file file)
{
    int length;

    *rewrite = (struct wb_rewrite){.store = store, .object = object, .file = file};
    wb_object_path(object, file, rewrite->path);
    length = snprintf(rewrite->temporary, sizeof(rewrite->temporary), "%s.new", rewrite->path);
    return length < 0 || (size_t)length >= sizeof(rewrite->temporary) ? -ENAMETOOLONG : 0;
}

int wb_rewrite_begin(struct wb_rewrite *rewrite, struct wb_store *store, struct wb_object object,
                     enum wb_object_file file)
{
    int r = name(rewrite, store, object, file);

    if (r < 0)
        return r;
    if (unlinkat(store->dir_fd, rewrite->temporary, 0) < 0 && errno != ENOENT)
        return -errno;
    return wb_log_open(&rewrite->log, store->dir_fd, rewrite->temporary, true);
}

int wb_rewrite_append(struct wb_rewrite *rewrite, struct wb_record *record, int fd)
{
    g_autofree uint8_t *data = NULL;
    struct iovec payload = {0};
    int r;

    /* It lists records at their offsets in the old log, also those that are left out. */
    if (record->type == WB_REC_INDEX)
        return 0;
    /* Nothing here has to stay in its place: what a filler says takes one, without a payload. */
    if (record->type == WB_REC_FILLER) {
        if (record->flags & WB_RECORD_MORE)
            return 0;
        record->payload_length = 0;
    }
    if (record->payload_length > 0) {
        data = g_try_malloc(record->payload_length);
        if (!data)
            return -ENOMEM;
        payload = (struct iovec){data, record->payload_length};
        r = wb_log_read_payload(fd, record, data);
        if (r < 0)
            return r;
    }
    pthread_mutex_lock(&rewrite->log->lock);
    /* A log whose records are out of order was not written by us, but records to delete must still be deleted. */
    rewrite->log->last_when = MIN(rewrite->log->last_when, record->when);
    r = wb_log_append_locked(rewrite->log, record, &payload, data ? 1 : 0);
    pthread_mutex_unlock(&rewrite->log->lock);
    return r;
}

int wb_rewrite_append_made(struct wb_rewrite *rewrite, struct wb_record *record, const void *payload)
{
    struct iovec piece = {(void *)(uintptr_t)payload, record->payload_length};
    int r;

    pthread_mutex_lock(&rewrite->log->lock);
    r = wb_log_append_locked(rewrite->log, record, &piece, record->payload_length > 0);
    pthread_mutex_unlock(&rewrite->log->lock);
    return r;
}

int wb_rewrite_append_gap(struct wb_rewrite *rewrite, int64_t since, int64_t when, enum wb_gap reason)
{
    struct wb_record record = {
        .type = WB_REC_GAP, .op = WB_OP_FORGET, .when = when, .gap = {since, (uint8_t)reason}};

    return wb_rewrite_append(rewrite, &record, -1);
}

static int copy_record(struct wb_rewrite *rewrite, int fd, const struct wb_rewrite_copy *copy,
                       struct wb_record *record)
{
    int64_t when = record->when;
    int r = copy->edit ? copy->edit(copy->data, record) : 1;

    if (r > 0)
        r = wb_rewrite_append(rewrite, record, fd);
    return r == -EBADMSG && copy->gaps ? wb_rewrite_append_gap(rewrite, 0, when, WB_GAP_EXTERNAL) : r;
}

int wb_rewrite_copy(struct wb_rewrite *rewrite, int fd, const struct wb_rewrite_copy *copy)
{
    struct wb_log_reader reader;
    struct wb_record record;
    bool damaged = false;
    unsigned copied = 0;
    int r = wb_log_reader_init(&reader, fd);

    if (r < 0)
        return r;
    wb_log_reader_seek(&reader, 0);
    while (r >= 0 && (r = wb_log_reader_next(&reader, &record)) >= 0 && r != WB_END) {
        if (r == WB_DAMAGED && !copy->gaps)
            r = -EBADMSG;
        damaged |= r == WB_DAMAGED;
        if (r != 0 || (copy->after > 0 && record.when <= copy->after))
            continue;
        if (damaged)
            r = wb_rewrite_append_gap(rewrite, 0, record.when, WB_GAP_EXTERNAL);
        damaged = false;
        if (r == 0)
            r = copy_record(rewrite, fd, copy, &record);
        if (r >= 0 && copy->count > 0 && ++copied == copy->count)
            break;
    }
    wb_log_reader_deinit(&reader);
    if (r == WB_END && damaged)
        r = wb_rewrite_append_gap(rewrite, 0, wb_store_tick(rewrite->store), WB_GAP_EXTERNAL);
    return MIN(r, 0);
}

int wb_rewrite_commit(struct wb_rewrite *rewrite)
{
    struct wb_store *store = rewrite->store;
    int r = wb_log_sync(rewrite->log, store->dir_fd, rewrite->temporary);

    if (r < 0)
        return r;
    r = wb_store_drop_log(store, rewrite->object, rewrite->file);
    if (r < 0)
        return r;
    if (renameat(store->dir_fd, rewrite->temporary, store->dir_fd, rewrite->path) < 0)
        return -errno;
    /* The new name is in the directory that the old one was in: the same fsync settles it. */
    rewrite->log->name_synced = false;
    r = wb_log_sync(rewrite->log, store->dir_fd, rewrite->path);
    rewrite->log = wb_log_free(rewrite->log);
    return r;
}

void wb_rewrite_leave(struct wb_rewrite *rewrite)
{
    rewrite->log = wb_log_free(rewrite->log);
}

int wb_rewrite_publish(struct wb_store *store, struct wb_object object, enum wb_object_file file)
{
    struct wb_rewrite rewrite;
    int r = name(&rewrite, store, object, file);

    if (r < 0)
        return r;
    r = wb_store_drop_log(store, object, file);
    if (r < 0)
        return r;
    return renameat(store->dir_fd, rewrite.temporary, store->dir_fd, rewrite.path) < 0 ? -errno : 0;
}

void wb_rewrite_discard(struct wb_store *store, struct wb_object object, enum wb_object_file file)
{
    struct wb_rewrite rewrite;

    if (name(&rewrite, store, object, file) == 0)
        unlinkat(store->dir_fd, rewrite.temporary, 0);
}

void wb_rewrite_abandon(struct wb_rewrite *rewrite)
{
    if (!rewrite->log)
        return;
    rewrite->log = wb_log_free(rewrite->log);
    unlinkat(rewrite->store->dir_fd, rewrite->temporary, 0);
}
