/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

/*
 * Which objects' logs must keep more than the others' when history is pruned (prune.h, `beyond`): those in the
 * directory of an older snapshot, and those whose path has a longer age.
 *
 * The tree is walked first and all catalogs are read afterwards, so one of the two shows each object that is renamed or
 * deleted meanwhile. An object is protected by every path it has in the tree and every name that a catalog still
 * records; a directory's catalog is protected as far as every object that was ever in it, since it leads to that
 * object, in the present and in the past.
 */

#include "maintain/prune/prune.h"

struct wb_prune_limits;

/*
 * 0; -ECANCELED; -E2BIG if more is protected than may be held in memory; -ELOOP if directories are nested too
 * deep; -EBADMSG if a catalog is damaged; or -errno. After an error, the protected objects are not known.
 */
int wb_prune_limits_make(struct wb_prune_limits **ret, struct wb_store *store, const struct wb_prune_options *options);
struct wb_prune_limits *wb_prune_limits_free(struct wb_prune_limits *limits); /* returns NULL */

/*
 * The moment before which the object's logs may be pruned: at least the horizon, at most `beyond`. `limits` NULL: the
 * horizon (options->before), or later if the object has a limit of its own.
 */
int64_t wb_prune_limits_before(const struct wb_prune_limits *limits, const struct wb_prune_options *options,
                               struct wb_object object);
