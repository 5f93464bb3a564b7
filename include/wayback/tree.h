/* SPDX-License-Identifier: LGPL-2.1-or-later */
#ifndef WAYBACK_TREE_H
#define WAYBACK_TREE_H

#include "wayback/error.h"

/*
 * Finds the tree of a store that is outside its tree (-o store=DIR): the directory at or above `path` whose history is
 * in the directory `store`. `path` is absolute; components that no longer exist are skipped. Returns 0 with the path of
 * the tree in *ret, which the caller free()s; -ENOENT if no such directory was found; or another negative errno with a
 * line in `why`. Reads only.
 */
int wb_tree_of_store(const char *store, const char *path, char **ret, struct wb_error *why);

#endif
