/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

/*
 * A log written anew: under a temporary name first, then published by fsync, rename, fsync of the
 * directory. After a crash the old or the new log is there, whole. Readers that have the old
 * one open go on reading it; writers are made to open the new one.
 */

#include "store/store.h"

struct wb_rewrite {
    struct wb_store *store;
    struct wb_object object;
    enum wb_object_file file;
    char path[WB_OBJECT_PATH_MAX];
    char temporary[WB_OBJECT_PATH_MAX];
    struct wb_log *log; /* NULL: nothing begun, or done */
};

int wb_rewrite_begin(struct wb_rewrite *rewrite, struct wb_store *store, struct wb_object object,
                     enum wb_object_file file);

/* Appends `record`; its payload, if it has one, is taken from `fd` (-EBADMSG where it is damaged). An INDEX is
 * left out. */
int wb_rewrite_append(struct wb_rewrite *rewrite, struct wb_record *record, int fd);

/* One that is in no log yet, with payload_length bytes of `payload`. */
int wb_rewrite_append_made(struct wb_rewrite *rewrite, struct wb_record *record, const void *payload);

/* "States of [since, when) are not known" as a record. */
int wb_rewrite_append_gap(struct wb_rewrite *rewrite, int64_t since, int64_t when, enum wb_gap reason);

/*
 * The log behind `fd`, from its beginning, without what is not later than `after`: each record as `edit` leaves it.
 * `edit` returns more than 0 to keep the record, 0 to drop it, or -errno; NULL: all are kept. Damaged records are not
 * copied: with `gaps`, a GAP shows that they existed, and without, -EBADMSG ends it.
 */
struct wb_rewrite_copy {
    int64_t after;  /* 0: all records are looked at                               */
    unsigned count; /* so many records; those behind them are left out; 0: all are */
    int (*edit)(void *data, struct wb_record *record);
    void *data;
    bool gaps;
};
int wb_rewrite_copy(struct wb_rewrite *rewrite, int fd, const struct wb_rewrite_copy *copy);

int wb_rewrite_commit(struct wb_rewrite *rewrite);

/*
 * Many at once, which share the waiting for the disk: each is left where it was written, then the caller brings all of
 * them to the disk (syncfs), publishes each, and does so again.
 */
void wb_rewrite_leave(struct wb_rewrite *rewrite);
int wb_rewrite_publish(struct wb_store *store, struct wb_object object, enum wb_object_file file);
/* Removes what was left, and not published. */
void wb_rewrite_discard(struct wb_store *store, struct wb_object object, enum wb_object_file file);

/* Nothing happened; harmless after a commit. */
void wb_rewrite_abandon(struct wb_rewrite *rewrite);
