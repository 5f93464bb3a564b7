/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

/*
 * Versions of one moment that are not kept (vprune, vrm --change): in the place of each, an older one shows. A program
 * that uses a moment again later compares the state then with the state now.
 */

#include "store/store.h"

struct wb_thinned {
    uint64_t files;              /* that show an older version at this moment     */
    uint64_t sum;                /* identifies the files, and the version that each shows */
    char name[WB_NAME_MAX + 1];  /* of one of them, "": not known; not compared   */
};

/* The beginning of the period for which the file of a name is not kept, up to a NAME with WB_RECORD_THINNED in the
 * catalog open at `fd`; 0: not recorded. 0 or -errno. */
int wb_thinned_since(int fd, const struct wb_record *name, int64_t *ret);

/* Walks all logs back to `when`, which should be pinned (store/tables/pins.h). Skips damage: no state is rebuilt from
 * it. 0 or -errno. */
int wb_thinned_at(struct wb_store *store, int64_t when, struct wb_thinned *ret);

bool wb_thinned_equal(const struct wb_thinned *a, const struct wb_thinned *b);
