/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

/*
 * Where a directory is now, from the PLACE records of the catalogs: no scan, no list of all
 * directories, nothing held in memory. Shared by recovery and by history.
 *
 * What is returned has been verified: every directory on the way was met under the name its
 * catalog told and has the identity the catalog told, so the order in which places are tried is
 * a matter of speed only. Safe beside a running daemon: a directory's new place is in its catalog
 * before it moves there.
 */

#include "store/store.h"

/* No chain of directories is longer, and no search for places that damage took reads more of them. */
#define WB_LOCATE_STEPS_MAX 4096

/*
 * Opens directory `dir` (which has a catalog, or is the root) O_PATH|O_DIRECTORY. 0; WB_ABSENT: it
 * is in the graveyard (wb_grave_open); -ENOENT: it has no catalog; -EIO: it is at none of its places.
 */
int wb_store_locate_dir(const struct wb_store *store, struct wb_object dir, int *ret_fd);

/* The same, and its path relative to the root of SRC ("" for the root), to g_free; either may be NULL. */
int wb_store_locate_path(const struct wb_store *store, struct wb_object dir, int *ret_fd,
                         char **ret_path);
