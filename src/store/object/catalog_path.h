/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

/*
 * Finds the present place of a directory from the PLACE records of the catalogs: without a scan, a list of all
 * directories, or state in memory. Used by recovery and by history.
 *
 * The result is verified: the directory that was found at the path has the identity that was looked for, so the order
 * in which places are tried affects speed only. Safe while a daemon runs: a directory's new place is in its catalog
 * before it moves there.
 */

#include "store/store.h"

/* The maximum length of a chain of directories, and the maximum number of places read by a search after damage. */
#define WB_RESOLVE_STEPS_MAX 4096

/*
 * Opens directory `dir` (which has a catalog, or is the root) O_PATH|O_DIRECTORY. 0; WB_ABSENT: it
 * is in the graveyard (wb_grave_open); -ENOENT: it has no catalog; -EIO: it is at none of its places.
 */
int wb_catalog_path_open_dir(const struct wb_store *store, struct wb_object dir, int *ret_fd);

/*
 * Places that were read from catalogs, for many searches. Without them, each search reads the catalogs of all
 * directories above the one it looks for. A result does not depend on them, and their number is bounded.
 */
struct wb_catalog_places;
struct wb_catalog_places *wb_catalog_places_new(void);
void wb_catalog_places_free(struct wb_catalog_places *places); /* may be NULL */

/* The same, and its path relative to the root of SRC ("" for the root), to g_free; either may be NULL. */
int wb_catalog_path_of(const struct wb_store *store, struct wb_object dir, int *ret_fd, char **ret_path);
/* As wb_catalog_path_of, with `known` places, which may be NULL. */
int wb_catalog_path_find(const struct wb_store *store, struct wb_catalog_places *known, struct wb_object dir,
                         int *ret_fd, char **ret_path);
