/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "history/log_cursor.h"

#include "base/interrupt.h"
#include "history/internal.h"
#include "wayback/error.h"
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

static int start(struct wb_log_cursor *source, int fd)
{
    int r;

    if (fd < 0)
        return fd == -ENOENT ? 0 : fd;
    r = wb_log_reader_init(&source->reader, fd);
    if (r < 0) {
        close(fd);
        return r;
    }
    source->fd = fd;
    source->over = false;
    return 0;
}

int wb_log_cursor_open(struct wb_log_cursor *source, const struct wb_store *store, struct wb_object object,
                       enum wb_object_file file)
{
    int fd;

    *source = (struct wb_log_cursor)WB_LOG_CURSOR_INIT;
    /* This records a GAP for a tail that a power cut took, before the log is read. */
    if (store->writable)
        (void)wb_store_tail_is_lost(store, object, file);
    fd = wb_store_open_file(store, object, file, O_RDONLY | O_CLOEXEC);
    return fd == -EIO ? wb_history_fail_damaged(object, file) : start(source, fd);
}

int wb_log_cursor_fork(struct wb_log_cursor *source, const struct wb_log_cursor *other)
{
    int r, fd;

    *source = (struct wb_log_cursor)WB_LOG_CURSOR_INIT;
    if (other->fd < 0)
        return 0;
    /* The same open file, so that a log replaced meanwhile cannot be met at a wrong offset. */
    fd = fcntl(other->fd, F_DUPFD_CLOEXEC, 3);
    r = start(source, fd < 0 ? -errno : fd);
    if (r < 0)
        return r;
    /* Aborts met so far concern records that are still to come: they go along. */
    source->skip = other->skip;
    source->begun = true;
    wb_log_reader_seek(&source->reader, other->head.offset);
    return 0;
}

void wb_log_cursor_close(struct wb_log_cursor *source)
{
    if (source->fd >= 0) {
        wb_log_reader_deinit(&source->reader);
        close(source->fd);
    }
    *source = (struct wb_log_cursor)WB_LOG_CURSOR_INIT;
}

int wb_log_cursor_peek(struct wb_log_cursor *source)
{
    int r;

    if (source->full)
        return 0;
    if (source->over)
        return WB_END;
    if (wb_interrupted())
        return -EINTR;
    r = wb_log_reader_prev_effective(&source->reader, &source->skip, &source->head);
    /* Nothing has been recorded since, so it counts for every moment. */
    if (r == 0 && !source->begun && source->head.type == WB_REC_GAP && source->head.flags & WB_RECORD_OPEN)
        source->head.when = WB_WHEN_UNDER_WAY;
    /* A gap may be noticed long after it ended. */
    if (r == 0 && source->head.type == WB_REC_GAP && source->head.gap.until != 0)
        source->head.when = source->head.gap.until;
    source->begun = true;
    if (r == 0)
        source->full = true;
    else if (r == WB_END)
        source->over = true;
    return r;
}

/* ---- names in records -------------------------------------------------------------------------- */

static bool name_is(const char *name, const char *other, uint8_t length)
{
    return strlen(name) == length && memcmp(name, other, length) == 0;
}

const struct wb_slot *wb_record_slot(const struct wb_record *record, const char *name)
{
    for (uint32_t i = 0; i < record->name.count; i++) {
        if (name_is(name, record->name.slots[i].name, record->name.slots[i].name_length))
            return &record->name.slots[i];
    }
    return NULL;
}

bool wb_slot_gains(const struct wb_record *record, const struct wb_slot *slot)
{
    /* A whiteout takes the place of a renamed entry in the same record that records the rename. */
    return slot->from_length > 0 || !wb_op_has(record->op, WB_EFFECT_UNNAMES);
}
