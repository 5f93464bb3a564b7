/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

/*
 * Resolves entries of the timeline: the change, the names in it, and their places at that time. For lists over a whole
 * tree; one reader for each list, used by one thread.
 */

#include "history/history.h"
#include "store/timeline/timeline.h"
#include <glib.h>

/* A name through which the change was made. `dir` none: not known; name "": the directory itself. */
struct wb_change_name {
    struct wb_object dir;
    char name[WB_NAME_MAX + 1];
    bool unknown; /* an entry of `dir`, but not known which */
};

struct wb_listed_change {
    int64_t when;
    uint16_t op;
    uint32_t actor;
    struct wb_object object;  /* none if the record has no object */
    struct wb_change_name at; /* rename: the old name                */
    struct wb_change_name other; /* rename: the new name; link, restore: the name or place before */
    bool has_other;
    bool existed_before, exists_after;
    uint32_t mode_before;
    uint64_t offset, length, size_before, size_after;
    bool begins;              /* of content: the first change through an open file, or one by path */
    bool linked;              /* the object had, or may have had, other names than `at` and `other` */
    bool is_gap, gap_open;    /* not a change: nothing is known from gap_since until `when` or, if open, until now */
    int64_t gap_since;
    char detail[WB_NAME_MAX + 1]; /* name of an extended attribute; of a gap, its reason */
};

struct wb_change_reader;
int wb_change_reader_new(struct wb_history *history, struct wb_change_reader **ret);
struct wb_change_reader *wb_change_reader_free(struct wb_change_reader *reader);

/* The present timeline; -EAGAIN while it is being built. Valid as long as the reader. */
const struct wb_times *wb_change_reader_times(const struct wb_change_reader *reader);

/* 0; WB_ABSENT: its record does not exist any more (erased); or -errno. */
int wb_change_read(struct wb_change_reader *reader, const struct wb_times_entry *entry, struct wb_listed_change *ret);

/* Whether directory `dir` ever moved: 1, 0 or -errno. */
int wb_change_has_moved(struct wb_change_reader *reader, struct wb_object dir);

/*
 * The place of directory `dir` at `when`: its parent and its name in it. *ret_settled: it never moved, so the answer
 * holds for all times. 0, WB_ABSENT if no record has it, or -errno.
 */
int wb_change_place(struct wb_change_reader *reader, struct wb_object dir, int64_t when, struct wb_object *ret_parent,
                    char ret_name[WB_NAME_MAX + 1], bool *ret_settled);
