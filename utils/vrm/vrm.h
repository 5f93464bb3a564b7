/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

/*
 * Patterns: what they find below a directory, among names that are there and names that were. Below a directory that
 * was removed, each that ever had its name is looked into; what moved away is found under the name it has now.
 */

#include <glib.h>
#include <stdbool.h>
#include "common/mount.h"
#include "wayback/control.h"
#include "wayback/pattern.h"

/* Asks, if need be; false after an error line or a no. */
bool vrm_confirmed(const struct wb_place *place, const char *question);

/* Prints the result of one of them; `hit`: one of a pattern, which may have been erased with another one. */
void vrm_report(const struct wb_place *place, bool hit, int r, const struct wb_control_erased *erased);

struct vrm_hit {
    char *path;   /* in the mount, as requests take it */
    char *shown;  /* as people see it                  */
    bool former;  /* below a directory that is no more */
};

/* ---- what there is (measure.c) ----------------------------------------------------------------- */

/* The figures in the question. */
struct vrm_extent {
    bool exists, directory;
    uint64_t versions, files;
    bool measured; /* what it frees is known: not with a moment, and not from an older daemon */
    struct wb_control_freed freed;
};

/* `before`: only of the history before that moment; 0: all. 0, -ENOENT (it has no history) or another -errno. */
int vrm_measure(const struct wb_place *place, int64_t before, struct vrm_extent *extent);
/* And how much room it frees. -EPERM: the caller may not erase it; 0 also when that is not known. */
int vrm_measure_room(const struct wb_place *place, const struct vrm_hit *hit, struct vrm_extent *extent);

/* ---- many names (batch.c) ---------------------------------------------------------------------- */

/*
 * Names that nobody has to be asked about any more are erased together, in one pass over the store: at the latest when
 * it ends. Then each is reported, in their order.
 */
void vrm_batch_add(const struct wb_place *place, bool hit, unsigned flags);
void vrm_batch_end(void);

/* ---- single versions (versions.c) ------------------------------------------------------------- */

struct vrm_range {
    int first, last; /* numbers of versions, 1: the newest; */
    bool single;     /* or of changes                       */
    bool dry_run, json;
};

/* "3" or "3..5", of changes "~~3" or "~~3..5": whether it is one. */
bool vrm_range_parse(const char *text, struct vrm_range *ret);
/* Erases the states of a file just before each of these. Errors are reported. */
void vrm_versions(const struct wb_place *place, const struct vrm_range *range);

/* ---- patterns (find.c) ------------------------------------------------------------------------ */

/* Of struct vrm_hit, in the order of a walk; g_ptr_array_unref. Parts that could not be read were reported. */
GPtrArray *vrm_find(const struct wb_place *place, const struct wb_patterns *patterns);
