/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

/*
 * A DATA change being written: extents are gathered into parts, each part is one record, and the
 * last one closes the change. Private to undo.c.
 */

#include "capture/plan.h"
#include "capture/stage.h"

/* Ranges from here on are cloned rather than copied, and searched for holes. */
#define WB_LARGE_RANGE (64u << 10)

struct wb_undo_writer {
    struct wb_store *store;
    struct wb_change *change;
    struct wb_target *target;
    const struct wb_overwrite *overwrite;
    struct wb_stage *stage; /* the change is part of, or NULL */
    int fd;
    uint32_t actor;
    uint8_t *buffer;       /* WB_PAYLOAD_MAX bytes: kept bytes below `used`, then what is being read */
    size_t used;
    struct wb_log *log;    /* opened with the first part or clone */
    uint64_t before;       /* where it ended before the change */
    bool begun;            /* log->lock is held, `when` given out, announced */
    struct wb_record record; /* the part being gathered */
};

/* What of a range is kept by blocks shared with the file: [from, to), at `source` of ID.image. */
struct wb_undo_image {
    uint64_t from, to, source;
};

/* WB_PAYLOAD_MAX bytes of this thread, or NULL. */
uint8_t *wb_capture_buffer(void);
