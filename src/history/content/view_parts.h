/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

/* What the files of a view of content share. */

#include "history/bits.h"
#include "history/content/extent_map.h"
#include "history/internal.h"
#include "store/graveyard/bundle.h"

struct wb_file_view {
    struct wb_history *history;
    struct wb_spot *spot;
    uint64_t size;
    struct wb_body present; /* the file as it is now */
    char *why_absent; /* or NULL: it was found, or there was no memory for the reason */
    int image;   /* ID.image, -1: not opened yet      */
    pthread_mutex_t lock;
    int log;     /* ID.undo, -1: there is none yet    */
    uint64_t seen; /* of the log: everything below is in the map */
    unsigned moves; /* of the store, when `log` was opened */
    unsigned logs; /* how often another one took its place */
    bool gathered; /* the map was made before, and then ...        */
    int64_t inside; /* ... of the records at or before T that count all the same (log.h), the oldest; 0: none does */
    struct wb_extent_map map;
    uint32_t blobs;      /* given numbers so far                                   */
    struct wb_bits verified; /* of these: the checksum was compared                */
};

/* Makes the map of what the log tells, or nothing of it; and drops it (view_gather.c). 0 or -errno. */
int wb_file_view_gather(struct wb_file_view *view);
void wb_file_view_forget(struct wb_file_view *view);
/* Another file has the log's name: what the image holds may be gone where only this one told of it. */
bool wb_file_view_is_replaced(const struct wb_file_view *view);
/* Looks whether the log tells more than before; view->lock is held. */
int wb_file_view_refresh(struct wb_file_view *view);
/* ID.image, opened at first use. A descriptor or -errno. */
int wb_file_view_open_image(struct wb_file_view *view, const struct wb_piece *piece);
/* -EIO, and why: its content was packed, and that is damaged. */
int wb_file_view_fail_bundle(const struct wb_file_view *view);
