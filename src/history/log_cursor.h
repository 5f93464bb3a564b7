/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

/*
 * A source: one log read backward, with one record of look-ahead, so that several logs can be
 * merged by `when`. A log that does not exist is a source that is over already.
 */

#include "store/store.h"

struct wb_log_cursor {
    int fd; /* -1: no such log */
    struct wb_log_reader reader;
    struct wb_log_skip skip;
    struct wb_record head; /* valid while `full`; its strings live until the next step */
    bool full;
    bool over;
    bool begun; /* the newest record was read */
};
#define WB_LOG_CURSOR_INIT                                                                                             \
    {                                                                                                                  \
        .fd = -1, .over = true                                                                                         \
    }

/* Opens the log of `object`, at its tail. 0 (also where there is none) or -errno. */
int wb_log_cursor_open(struct wb_log_cursor *source, const struct wb_store *store, struct wb_object object,
                       enum wb_object_file file);

/*
 * A second source on the same log, standing just before the record `other` has in view: newer
 * records need not be read again.
 */
int wb_log_cursor_fork(struct wb_log_cursor *source, const struct wb_log_cursor *other);

void wb_log_cursor_close(struct wb_log_cursor *source);

/* Brings a record into view if there is none: 0, WB_END, WB_DAMAGED (call again), or -errno; -EINTR: the thread is to
 * give up its work (base/interrupt.h). */
int wb_log_cursor_peek(struct wb_log_cursor *source);

/* Done with the record in view. */
static inline void wb_log_cursor_take(struct wb_log_cursor *source)
{
    source->full = false;
}

/* The slot of `name` in a NAME record, or NULL. */
const struct wb_slot *wb_record_slot(const struct wb_record *record, const char *name);

/* Whether somebody has the slot's name after the change. */
bool wb_slot_gains(const struct wb_record *record, const struct wb_slot *slot);
