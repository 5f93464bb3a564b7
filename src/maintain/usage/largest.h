/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

/*
 * The files with the largest history, by the name that each had last: one for each object, so that a caller can be
 * asked about each before those of one name are added up. Memory is bounded: beyond it the smallest are dropped.
 */

#include "store/store.h"
#include <glib.h>

struct wb_usage_file {
    struct wb_object object, dir;
    char *name;
    int64_t lost; /* when it was deleted; 0: it was not */
    int64_t oldest, newest;
    uint64_t files, bytes, disk, shared; /* in the store */
};

/* An array of struct wb_usage_file. */
GPtrArray *wb_usage_largest_new(void);

/* Takes `name`. At most `most` are kept for good, twice as many for the time being. */
void wb_usage_largest_add(GPtrArray *largest, struct wb_usage_file file, unsigned most);

/* Sorts them, the largest first, and keeps `most` of them. */
void wb_usage_largest_cut(GPtrArray *largest, unsigned most);
