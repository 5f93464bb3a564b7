/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

/*
 * All names that a directory ever had: one walk over its catalog, from the entries at its T back to the beginning of
 * the records. Memory is proportional to the distinct names (and the directories that had them), however often each
 * appeared and disappeared.
 */

#include "history/versions/open_times.h"

/*
 * A span of a name: from its appearance in the directory to its disappearance. If another object takes it over in
 * between (rename over it), the span continues; the span has the last object. Directories that lost the name that way
 * have items of their own, `replaced`, because they contained names.
 */
struct wb_name {
    const char *name;
    unsigned index; /* among the spans of the name: 0 is the newest                            */
    unsigned spans; /* how many spans it had, reported or not                                  */
    bool present;   /* it existed at T; then `last`, `size` and the following fields are not valid */
    bool replaced;  /* not an end of the name: another object took it over from a directory    */
    struct wb_object object;
    uint32_t mode;
    uint64_t size;
    int64_t first; /* of the change that created it; 0: before the records begin               */
    int64_t last;  /* of the change that ended it                                              */
    uint32_t actor; /* of the change that ended it; 0: not known                               */
    bool moved;    /* it was renamed to `to_name` in `to_dir`                                  */
    struct wb_object to_dir;
    const char *to_name;
};

struct wb_names_options {
    const char *only; /* one name, NULL: all                                                   */
    unsigned spans;   /* the number of newest spans to report for each name, at least 1; directories are always
                       * reported */
    /* Whether the caller may see the names in `dir`, as it was at its T: 0 or -EACCES. NULL: always. */
    wb_open_ask may;
    void *data;
};

struct wb_names;

/*
 * Reads everything; 0 or -errno. With `may`, names that never existed at a time when they were visible are omitted, and
 * not counted; it is called for each time at which the directory, or one above it, changed its rights or place.
 */
int wb_names_open(struct wb_history *history, struct wb_revision *dir, const struct wb_names_options *options,
                  struct wb_names **ret);
struct wb_names *wb_names_free(struct wb_names *names);

/* In byte order of names, the spans of each newest first. */
size_t wb_names_count(const struct wb_names *names);
const struct wb_name *wb_names_get(const struct wb_names *names, size_t index);

/* Whether part of the records is damaged or a gap: names may be missing, and spans may be too long. */
bool wb_names_are_incomplete(const struct wb_names *names);
