/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

/*
 * A DATA change being written: extents are gathered into parts, each part is one record, and the
 * last one closes the change. Private to undo.c and image.c.
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

int wb_undo_writer_open_log(struct wb_undo_writer *writer);

/* What of a range is kept by blocks shared with the file: [from, to), at `source` of ID.image. */
struct wb_undo_image {
    uint64_t from, to, source;
};

/*
 * Keeps [from, to) of the file, or as much of its middle as is aligned, in ID.image: a clone, or a part of
 * one made ahead. 0 and what was kept; WB_UNCHANGED: it must be copied. To be called for whatever is about
 * to change, however small: clones made ahead depend on it.
 */
int wb_undo_clone(struct wb_undo_writer *writer, uint64_t from, uint64_t to, struct wb_undo_image *ret);

/* WB_PAYLOAD_MAX bytes of this thread, or NULL. */
uint8_t *wb_capture_buffer(void);

/* The attributes of `target`, which `fd` is of, before the change: 0 or -errno. */
int wb_attrs_before(struct wb_store *store, const struct wb_target *target, int fd, struct wb_attrs *ret);
