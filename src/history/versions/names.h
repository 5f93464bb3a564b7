/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

/*
 * All names that were ever in a directory: one walk over its catalog, from what it holds at its T back to where
 * the records begin. Memory is that of the distinct names (and of the directories that had them), however
 * often each came and went.
 */

#include "history/versions/open_times.h"

/*
 * A span of a name: from when it came to be in the directory until it was gone from it. That another object took
 * it over in between (rename over it) does not end a span; the object told is the last one. Directories that
 * were taken over that way are told in items of their own, `replaced`, because names were in them.
 */
struct wb_name {
    const char *name;
    unsigned index; /* among the spans of the name: 0 is the newest                            */
    unsigned spans; /* how many it had, told or not                                            */
    bool present;   /* it was there at T; then `last`, `size` and what follows mean nothing    */
    bool replaced;  /* not an end of the name: a directory was taken over by something else    */
    struct wb_object object;
    uint32_t mode;
    uint64_t size;
    int64_t first; /* of the change that made it; 0: before the records begin                  */
    int64_t last;  /* of the change that ended it                                              */
    uint32_t actor; /* who ended it; 0: not known                                              */
    bool moved;    /* it went to `to_name` in `to_dir`                                         */
    struct wb_object to_dir;
    const char *to_name;
};

struct wb_names_options {
    const char *only; /* one name, NULL: all                                                   */
    unsigned spans;   /* newest ones told of each name, at least 1; directories are always told */
    /* Whether the names in `dir` may be told, as it was at its T: 0 or -EACCES. NULL: always. */
    wb_open_ask may;
    void *data;
};

struct wb_names;

/*
 * Reads everything; 0 or -errno. With `may`, what was never there while it might be seen is left out, and not
 * counted; it is asked for each time at which the directory, or one above it, changed its rights or place.
 */
int wb_names_open(struct wb_history *history, struct wb_spot *dir, const struct wb_names_options *options,
                  struct wb_names **ret);
struct wb_names *wb_names_free(struct wb_names *names);

/* In byte order of names, the spans of each newest first. */
size_t wb_names_count(const struct wb_names *names);
const struct wb_name *wb_names_get(const struct wb_names *names, size_t index);

/* Part of the records is damaged, or a gap: names may be missing, and spans be too long. */
bool wb_names_are_incomplete(const struct wb_names *names);
