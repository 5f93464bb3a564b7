/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

/*
 * A summary of all catalogs: at which moments they record a change of which object, the names of files (thin_names.h),
 * and the parts that are not known. Such an *unknown span* is a GAP, or damage: from the sound record before it to the
 * one after it.
 *
 * Which files an unknown span concerns: the loss of a name is recorded in the catalog of its directory, and a file of
 * one name leaves a directory by losing that name. So no other catalog records a file that was in a directory until
 * that directory's catalog records that it left. If that catalog has no unknown span and no record of the file from one
 * moment to another, no other unknown span in that time can concern the file. The undo log says in which directory a
 * file was changed (via). If it does not say so, or the file had several names, every unknown span may concern it.
 *
 * Unknown names count as well if the retention rules depend on names: if a file may have lost a name in a damaged part,
 * judging by where it was or came from, all its versions are kept.
 */

#include "maintain/thin/thin_names.h"

struct wb_thin_catalogs {
    struct wb_store *store;
    bool by_path;               /* names are wanted, too                                 */
    struct wb_thin_names names;
    GArray *moments;            /* of struct wb_thin_moment                              */
    GArray *unknown_spans;      /* of struct wb_thin_unknown_span                                */
    GHashTable *replacing;      /* struct wb_object: directories with a save (thin_saves.h), perhaps */
    int blind;                  /* -errno: not even that is known; nothing is thinned    */
};

/* A catalog has a record of the object at that moment. */
struct wb_thin_moment {
    struct wb_object object;
    int64_t when;
};

/* The records of the catalog of `dir` from `since` to `when` are not all known. */
struct wb_thin_unknown_span {
    struct wb_object dir;
    int64_t since, when;
    bool damaged;
};

void wb_thin_catalogs_init(struct wb_thin_catalogs *catalogs, struct wb_store *store, bool by_path,
                           bool (*stop)(void *data), void *data);
void wb_thin_catalogs_deinit(struct wb_thin_catalogs *catalogs);

/* Reads the catalog of a directory; errors become an unknown span, or `blind`. _sort: after all were read. */
void wb_thin_catalogs_read(struct wb_thin_catalogs *catalogs, struct wb_object dir);
void wb_thin_catalogs_sort(struct wb_thin_catalogs *catalogs);

/* The first of the moments of an object, of which there are *ret_count, by `when`. NULL: no catalog records one. */
const struct wb_thin_moment *wb_thin_catalogs_moments(const struct wb_thin_catalogs *catalogs, struct wb_object object,
                                                      guint *ret_count);

/* An unknown span that may concern a file that was changed in the directories `one` and `other`, from the one change to
 * the other; WB_OBJECT_NONE: the directory is not known. Prefers a damaged one; NULL: there is none. */
const struct wb_thin_unknown_span *wb_thin_catalogs_unknown_span(const struct wb_thin_catalogs *catalogs,
                                                                 struct wb_object one, struct wb_object other,
                                                                 int64_t from, int64_t until);
