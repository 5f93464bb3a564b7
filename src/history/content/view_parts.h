/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

/* Internal declarations of views of content. */

#include "history/bits.h"
#include "history/content/extent_map.h"
#include "history/internal.h"
#include "store/graveyard/bundle.h"

struct wb_file_view {
    struct wb_history *history;
    struct wb_revision *revision;
    uint64_t size;
    struct wb_body present; /* the present file */
    char *why_absent; /* or NULL: it was found, or there was no memory for the reason */
    int image;   /* ID.image, -1: not opened yet      */
    pthread_mutex_t lock;
    int log;     /* ID.undo, -1: it does not exist yet */
    uint64_t seen; /* offset in the log: all records below are in the map */
    unsigned moves; /* of the store, when `log` was opened */
    unsigned logs; /* how often another file replaced it */
    bool gathered; /* the map was made before, and then ...        */
    int64_t inside; /* ... with these records at or before T that count all the same (log.h): the oldest; 0: none */
    struct wb_extent_map map;
    uint32_t blobs;      /* the number of blobs that have a number so far          */
    struct wb_bits verified; /* blobs whose checksum was verified                  */
};

/* Makes the map from all records of the log, or from none on failure; and drops it (view_gather.c). 0 or -errno. */
int wb_file_view_gather(struct wb_file_view *view);
void wb_file_view_forget(struct wb_file_view *view);
/* Another file has the log's name: parts of the image that only this log refers to may be gone. */
bool wb_file_view_is_replaced(const struct wb_file_view *view);
/* Adds new records of the log; view->lock is held. */
int wb_file_view_refresh(struct wb_file_view *view);
/* ID.image, opened at first use. A descriptor or -errno. */
int wb_file_view_open_image(struct wb_file_view *view, const struct wb_piece *piece);
/* Returns -EIO and the reason: the content was packed, and the bundle is damaged. */
int wb_file_view_fail_bundle(const struct wb_file_view *view);
