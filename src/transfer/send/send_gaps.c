/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Open gaps: files and directories that were changed while the store took no records (onfull=continue), if there is no
 * GAP record of that yet, and those that wayback.conf excludes, whose newest record is a GAP without an end. The stream
 * has a GAP record at its own end for them, so the copy refuses all states before it, or those since the exclusion.
 * The state at the end is the present one of the tree, if the inode has not been changed since. Its ctime shows that,
 * also for changes without a record.
 */
#include "transfer/send/send.h"

#include "base/cleanup.h"
#include "base/io.h"
#include "format/object_key.h"
#include "store/directory/shard.h"
#include "store/log/log.h"
#include "wayback/when.h"
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <time.h>

/* A ctime may be as old as the clock tick in which it was taken; ten times that of the slowest kernel. */
#define TICK_SLACK (100 * (WB_WHEN_SECOND / 1000))

static int read_place(struct wb_sending *sending, const uint8_t data[WB_GAP_SIZE])
{
    struct wb_open_gap gap;

    if (wb_is_zero(data, WB_GAP_SIZE))
        return 0;
    if (wb_gap_decode(data, &gap) < 0)
        return wb_error_set(sending->why, -EBADMSG,
                            "the file " WB_GAPS_NAME " of the store is damaged, so changes "
                            "may be missing in any log; run vfsck");
    g_array_append_val(sending->gaps, gap);
    return 0;
}

/* ---- what wayback.conf leaves out ------------------------------------------------------------------ */

static int read_newest(struct wb_sending *sending, int fd, struct wb_object object, enum wb_object_file file)
{
    struct wb_log_reader reader;
    struct wb_record record;
    int r = wb_log_reader_init(&reader, fd);

    if (r < 0)
        return r;
    r = wb_log_reader_prev(&reader, &record);
    if (r == 0 && record.type == WB_REC_GAP && record.flags & WB_RECORD_OPEN) {
        struct wb_open_gap gap = {.object = object, .since = record.gap.since, .file = file};

        g_array_append_val(sending->gaps, gap);
    }
    wb_log_reader_deinit(&reader);
    return MIN(r, 0);
}

static int look_at(void *data, int dir_fd, const char *name)
{
    _cleanup_close_ int fd = -1;
    struct wb_object object;
    enum wb_object_file file;

    if (wb_object_file_parse(name, &object, &file) < 0 || (file != WB_FILE_UNDO && file != WB_FILE_CATALOG))
        return 0;
    fd = wb_open_own(dir_fd, name, O_RDONLY, 0);
    /* It may go meanwhile, with all of its history. */
    if (fd < 0)
        return fd == -ENOENT ? 0 : fd;
    return read_newest(data, fd, object, file);
}

static int read_left_out(struct wb_sending *sending)
{
    int r = 0;

    for (unsigned i = 0; r == 0 && i < WB_SHARDS; i++)
        r = wb_shard_each(sending->store->dir_fd, i, look_at, sending);
    if (r < 0)
        wb_error_set(sending->why, r, "the logs of the store cannot be read: %s", g_strerror(-r));
    return r;
}

int wb_sending_read_gaps(struct wb_sending *sending)
{
    _cleanup_close_ int fd = wb_open_own(sending->store->dir_fd, WB_GAPS_NAME, O_RDONLY, 0);
    const struct timespec pause = {.tv_nsec = TICK_SLACK + TICK_SLACK / 2};
    uint8_t data[WB_GAP_SIZE];
    size_t length = sizeof(data);
    int r = fd < 0 && fd != -ENOENT ? fd : 0;

    g_array_set_size(sending->gaps, 0);
    for (uint64_t i = 1; fd >= 0 && i <= WB_GAPS_MAX && r == 0 && length == sizeof(data); i++) {
        r = wb_pread_full(fd, data, sizeof(data), i * WB_GAP_SIZE, &length);
        if (r == 0 && length == sizeof(data))
            r = read_place(sending, data);
    }
    sending->refused = sending->gaps->len;
    if (r == 0)
        r = read_left_out(sending);
    /* The end of the stream, which is chosen afterwards, is later than the change just made, by the clock of ctime. */
    if (r == 0 && sending->gaps->len > 0)
        nanosleep(&pause, NULL);
    if (r < 0 && !*sending->why->text)
        wb_error_set(sending->why, r, "the file " WB_GAPS_NAME " of the store cannot be read: %s", g_strerror(-r));
    return r;
}

static bool has_gap(const struct wb_sending *sending, struct wb_object object)
{
    for (guint i = 0; i < sending->gaps->len; i++)
        if (wb_object_equal(g_array_index(sending->gaps, struct wb_open_gap, i).object, object))
            return true;
    return false;
}

int wb_sending_check_gap(struct wb_sending *sending, struct wb_revision *revision)
{
    struct wb_revision *parent = wb_revision_parent(revision);
    int64_t end = MIN(sending->until, sending->clock) - TICK_SLACK;
    struct wb_attrs attrs;
    int r;

    /* Attributes and growth of a file with one name are recorded in the catalog of its directory. */
    if (!has_gap(sending, wb_revision_object(revision)) && !(parent && has_gap(sending, wb_revision_object(parent))))
        return 0;
    r = wb_revision_attrs(sending->history, revision, &attrs);
    if (r == 0 && attrs.ctime >= end)
        return wb_error_set(sending->why, -EAGAIN,
                            "%s: was changed while it was sent, and the store accepts no "
                            "record of it (is it full?); free space in the store, or send again when it is idle",
                            parent ? wb_revision_name(revision) : ".");
    return r;
}

/* ---- as records ------------------------------------------------------------------------------------ */

static int send_gap(struct wb_sending *sending, const struct wb_open_gap *gap, unsigned reason)
{
    struct wb_stream_record body = {
        .object = gap->object, .log = gap->file == WB_FILE_CATALOG ? WB_STREAM_CATALOG : WB_STREAM_UNDO};
    struct wb_record record = {.type = WB_REC_GAP, .when = sending->until,
                               .gap = {.since = gap->since, .reason = (uint8_t)reason}};
    uint8_t head[WB_STREAM_RECORD_SIZE], end[16];
    int length, end_length;

    length = wb_record_encode(&record, sending->data);
    if (length < 0)
        return length;
    end_length = wb_record_encode_end(&record, end);
    memcpy(sending->data + length, end, (size_t)end_length);
    wb_stream_encode_record(&body, head);
    sending->frames.records++;
    wb_sending_note_gap(sending, gap->object);
    return wb_frames_write(&sending->frames, WB_FRAME_RECORD, head, sizeof(head), sending->data,
                           (size_t)(length + end_length));
}

/* The log of a directory cannot begin with a GAP: without a catalog, no record of it shows where the directory is. */
static int check_catalog(struct wb_sending *sending, const struct wb_open_gap *gap)
{
    int had = gap->file == WB_FILE_CATALOG ? wb_store_has_log(sending->store, gap->object, gap->file) : 1;

    if (had != 0)
        return MIN(had, 0);
    return wb_error_set(sending->why, -EBUSY,
                        "changes in a directory without a log could not be recorded; free "
                        "space in the store, and send again");
}

int wb_sending_gaps(struct wb_sending *sending)
{
    int r = 0;

    for (guint i = 0; r == 0 && i < sending->gaps->len; i++) {
        const struct wb_open_gap *gap = &g_array_index(sending->gaps, struct wb_open_gap, i);

        /* What was sent once, to an older end, is made again as it was. */
        if (gap->since > sending->until)
            continue;
        r = check_catalog(sending, gap);
        if (r == 0)
            r = send_gap(sending, gap, i < sending->refused ? WB_GAP_REFUSED : WB_GAP_POLICY);
    }
    return r;
}
