/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

/*
 * Versions of one moment that are not kept (vprune, vrm --change): in the place of each, an older one shows. Whoever
 * relies on a moment beyond his own time compares what it was then with what it is now.
 */

#include "store/store.h"

struct wb_thinned {
    uint64_t files;              /* that show an older version at this moment     */
    uint64_t sum;                /* of which files, and which version each shows  */
    char name[WB_NAME_MAX + 1];  /* of one of them, "": not known; not compared   */
};

/* Since when what a name was is not kept, up to a NAME with WB_RECORD_THINNED in the catalog that `fd` is the file of;
 * 0: it is not told. 0 or -errno. */
int wb_thinned_since(int fd, const struct wb_record *name, int64_t *ret);

/* All logs are walked back to `when`, which should be pinned (store/tables/pins.h). What is damaged is passed over: no
 * state is rebuilt from it. 0 or -errno. */
int wb_thinned_at(struct wb_store *store, int64_t when, struct wb_thinned *ret);

bool wb_thinned_equal(const struct wb_thinned *a, const struct wb_thinned *b);
