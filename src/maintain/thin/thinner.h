/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

/* Decisions for both parts of a thinner: versions of one object (thin_store.c), of a name (thin_replaced.c). */

#include "maintain/thin/thin_store.h"
#include "maintain/thin/thin_catalogs.h"

struct wb_thinner {
    struct wb_store *store;
    struct wb_thin_options options;
    int64_t now;
    int64_t settled; /* no change of this moment or before is under way */
    struct wb_thin_catalogs catalogs;
    struct wb_thin_count *count;
};

/* Moments that stay as they are (int64_t), in their order. 0 or -errno. */
int wb_thinner_pins(const struct wb_thinner *thinner, GArray *pins);

/* What holds for a path goes to `rules` (of struct wb_retention), once. 0; 1: all of its versions stay. */
int wb_thinner_rule(const struct wb_thinner *thinner, const char *path, GArray *rules);

/* `stays` becomes true of what any rule holds. 0 or -errno. */
int wb_thinner_decide(const struct wb_thinner *thinner, const GArray *rules, const struct wb_shown *shown, size_t count,
                      bool *stays);

/* ---- of a name (thin_replaced.c) ------------------------------------------------------------- */

/*
 * Files that others replaced at their name, in one directory, and that are not kept: the file they replaced shows in
 * their place (docs/format.md, Thinning). Each of them goes with its logs. 0; -ECANCELED; or -errno: others may have
 * gone.
 */
int wb_thin_replaced(struct wb_thinner *thinner, struct wb_object dir);

/* Of those that went, what a crash left in a folder, 0 to 255. */
int wb_thin_replaced_rest(struct wb_thinner *thinner, unsigned shard);
