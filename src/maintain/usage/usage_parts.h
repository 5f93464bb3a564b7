/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

/* The parts of maintain/usage; for its own files only. */

#include "maintain/usage/usage.h"

/* What has files in the store, and is no directory. */
struct wb_usage_thing {
    struct wb_object object;
    struct wb_object dir; /* where it was last named, */
    int64_t named;        /* and when that was        */
    int64_t lost;         /* when it last lost a name to nothing */
    int64_t buried;       /* as its inode tells, where no record does */
    uint64_t body;        /* bytes of the file itself */
    struct wb_usage_total total;
};

/* Bytes of a change at `when`. */
void wb_usage_age(struct wb_usage_total *total, int64_t now, int64_t when, uint64_t bytes);

/*
 * A catalog: its bytes (unless `names_only`: another pass has them), its place, and what it tells of things. 0, also
 * where it is not there any more, or -errno.
 */
int wb_usage_catalog(struct wb_usage *usage, struct wb_object self, bool names_only);

/* An undo log, into `thing`; counts in *damaged what could not be read. */
int wb_usage_undo(struct wb_store *store, int64_t now, struct wb_usage_thing *thing, uint64_t *damaged);

/* An image, a buried file. `dir_fd`: where `path` is. 0 or -errno. */
int wb_usage_image(struct wb_store *store, struct wb_usage_thing *thing);
int wb_usage_body(int dir_fd, const char *path, struct wb_usage_thing *thing);
/* Its part of the bundle that its content is packed in, if it is. */
int wb_usage_bundle(struct wb_store *store, enum wb_object_file file, struct wb_usage_thing *thing);
/* The age of what was buried is known when all names are. */
void wb_usage_settle(struct wb_usage_thing *thing, int64_t now);
