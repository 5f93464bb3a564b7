/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

/*
 * Who may reach an object that was removed. No path leads to it, so its own mode alone would open what a private
 * directory closed: the directory that lost it stands in for a path, as it was then and as it is now.
 *
 * Finding that directory reads catalogs, so the last answers are kept.
 */

#include "daemon/core/session.h"

struct wb_buried_cache;

struct wb_buried_cache *wb_buried_cache_new(void);
struct wb_buried_cache *wb_buried_cache_free(struct wb_buried_cache *cache);

/*
 * Whether the caller may reach and search the directory that lost the object now and, unless that is the one it was
 * found in, could search it and everything above it just before the loss: rights that a directory gives since then do
 * not count. Where it was removed in turn, the same of the directory that lost it. An object that had other names when
 * it lost this one is refused: no record says which directory closed those.
 * 0, -EACCES or another -errno.
 */
int wb_past_may_reach_buried(struct wb_session *session, fuse_req_t req, struct wb_spot *spot);

/*
 * The same for an object whose name at the spot was removed while it has another one: whether the caller may reach the
 * name by which the daemon knows it. -EACCES where it knows none.
 */
int wb_past_may_reach_other(struct wb_session *session, fuse_req_t req, struct wb_spot *spot, int fd);

/* Whether the caller may search every directory that leads to `path` (from the root of SRC) now: as above. */
int wb_past_may_reach_path(struct wb_session *session, fuse_req_t req, const char *path);

/* Whether it is in the graveyard and has no name left. `fd`: of the object. */
bool wb_past_is_buried(struct wb_session *session, const struct wb_spot *spot, int fd);
