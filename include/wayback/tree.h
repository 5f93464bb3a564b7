/* SPDX-License-Identifier: LGPL-2.1-or-later */
#ifndef WAYBACK_TREE_H
#define WAYBACK_TREE_H

#include "wayback/error.h"

/*
 * Which tree a store is of, where it is not in that tree (-o store=DIR): the directory at or above `path`
 * (absolute; what of it no longer exists is passed over) whose history is in the directory `store`. *ret is to be
 * free()d. 0; -ENOENT: none of them; or a negative errno with a line in `why`. Reads only.
 */
int wb_tree_of_store(const char *store, const char *path, char **ret, struct wb_problem *why);

#endif
