/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

/*
 * What all catalogs tell: when they tell anything of which object, what files are called (thin_names.h), and where
 * they do not tell all. Such a *lack* is a GAP, or damage: from the sound record before it to the one after it.
 *
 * What a lack concerns: a name is lost in the catalog of its directory, and a file of one name leaves a directory by
 * losing it. So of a file that was in a directory, nothing is told anywhere until that directory's catalog tells that
 * it left; and from one moment to another in which that catalog lacks nothing and tells nothing of the file, no other
 * lack can be of it. The undo log says in which directory a file was changed (via). Where it does not say so, or the
 * file had several names, every lack may be of it.
 *
 * Names that nobody knows count as well, where what is kept goes by them: of a file that may have lost a name in what
 * is damaged, by where it was or came from, no version goes.
 */

#include "maintain/thin/thin_names.h"

struct wb_thin_catalogs {
    struct wb_store *store;
    bool by_path;               /* names are wanted, too                                 */
    struct wb_thin_names names;
    GArray *moments;            /* of struct wb_thin_moment                              */
    GArray *unknown_spans;      /* of struct wb_thin_unknown_span                                */
    GHashTable *replacing;      /* struct wb_object: directories with a save (thin_saves.h), perhaps */
    int blind;                  /* -errno: not even that is known; nothing goes          */
};

/* Something is told of the object at that moment. */
struct wb_thin_moment {
    struct wb_object object;
    int64_t when;
};

/* What the catalog of `dir` told from `since` to `when` is not all known. */
struct wb_thin_unknown_span {
    struct wb_object dir;
    int64_t since, when;
    bool damaged;
};

void wb_thin_catalogs_init(struct wb_thin_catalogs *catalogs, struct wb_store *store, bool by_path,
                           bool (*stop)(void *data), void *data);
void wb_thin_catalogs_deinit(struct wb_thin_catalogs *catalogs);

/* Reads the catalog of a directory; what is wrong with it becomes a lack, or `blind`. And: all were read. */
void wb_thin_catalogs_read(struct wb_thin_catalogs *catalogs, struct wb_object dir);
void wb_thin_catalogs_sort(struct wb_thin_catalogs *catalogs);

/* The first of the moments of an object, of which there are *ret_count, by `when`. NULL: nothing is told of any. */
const struct wb_thin_moment *wb_thin_catalogs_moments(const struct wb_thin_catalogs *catalogs, struct wb_object object,
                                                      guint *ret_count);

/* A lack that may be of a file that was changed in the directories `one` and `other`, from the one change to the other;
 * none: it is not known where. Damage, if there is such; NULL: there is no lack. */
const struct wb_thin_unknown_span *wb_thin_catalogs_unknown_span(const struct wb_thin_catalogs *catalogs,
                                                                 struct wb_object one, struct wb_object other,
                                                                 int64_t from, int64_t until);
