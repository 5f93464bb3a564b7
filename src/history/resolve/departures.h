/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

/*
 * The names that objects lost in one directory, as its catalog has them: where each went, or that it was lost.
 *
 * A listing of a directory of the past looks this up for every entry. So at the second lookup in a directory, one pass
 * over its catalog gathers the departures of all objects, and they are kept for as long as the catalog is the same file
 * of the same length and time.
 */

#include "history/history.h"
#include <glib.h>

struct wb_departure {
    struct wb_object object;
    int64_t when;
    uint32_t links;             /* that the object had until then */
    struct wb_object to_dir;
    const char *name, *to_name; /* to_name NULL: it was lost */
};

struct wb_departures;

/*
 * Those of `object` from `dir` that are later than `since` and, unless `alone`, perhaps those of other objects. To be
 * unreferenced. 0 or -errno.
 */
int wb_departures_of(struct wb_history *history, struct wb_object dir, struct wb_object object, int64_t since,
                     bool alone, struct wb_departures **ret);
struct wb_departures *wb_departures_unref(struct wb_departures *departures);

/* The first of `object` and `name` later than `when`, or NULL. */
const struct wb_departure *wb_departures_find(const struct wb_departures *departures, struct wb_object object,
                                              const char *name, int64_t when);

/* How many there are. */
size_t wb_departures_count(const struct wb_departures *departures);

struct wb_departures_cache *wb_departures_cache_new(void);
struct wb_departures_cache *wb_departures_cache_free(struct wb_departures_cache *cache);
