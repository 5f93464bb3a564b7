/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

/*
 * What a whole stream says is made so. In this order, so that whatever interrupts it, every moment that was there stays
 * exact, and it can be gone through again from where it was:
 *
 *   1. what is new is made in `receiving`, and bound to its object;
 *   2. records are appended: they say of all that the tree will lose how it was;
 *   3. the tree: names, then content and attributes.
 */

#include "store/tables/received.h"
#include "transfer/receive/copy_tree.h"
#include "transfer/wire/frames.h"

struct wb_applying {
    struct wb_copy_tree tree;
    int spool_fd; /* the stream, verified to its end */
    struct wb_stream_hello hello;
    bool again;   /* records may have been appended before */
    bool renews;  /* the stream has programs with power    */
    struct wb_copy_result *result;
    struct wb_error *why;
};

/* Calls `each` for every frame of the stream, until it returns something other than 0. */
int wb_apply_each(struct wb_applying *applying, int (*each)(const struct wb_stream_body *body, void *data), void *data);

/* Before anything is done (apply_check.c): 0; -EBADMSG with a line in `why`: it cannot be carried out. */
int wb_apply_check(struct wb_applying *applying);

/* Step 1 (apply_object.c), 2 (apply_records.c), and the two parts of 3 (apply_names.c, apply_object.c). 0 or -errno. */
int wb_apply_new_objects(struct wb_applying *applying);
int wb_apply_records(struct wb_applying *applying);
int wb_apply_names(struct wb_applying *applying);
int wb_apply_objects(struct wb_applying *applying);

/* Makes a range of a file read as zeros, as far as the file goes (apply_records.c). 0 or -errno. */
int wb_apply_zeros(int fd, uint64_t offset, uint64_t length);

/* The log that a record is for, relative to the store (apply_records.c). */
void wb_apply_log_path(const struct wb_stream_record *body, char path[WB_OBJECT_PATH_MAX]);

/*
 * The same of a NAME with WB_RECORD_THINNED, in the catalog of `dir`, where the versions that were thinned out began
 * before the copy was brought up to date: the file that was lost is the one the copy has at that name. `filled`, of
 * struct wb_filled by `was`, is for all records of that catalog. 0 or -errno.
 */
struct wb_filled {
    struct wb_object was, now;
    struct wb_attrs attrs;
};

/* All of it, from the phase that `received` is in. */
int wb_apply(struct wb_applying *applying, struct wb_received *received);
