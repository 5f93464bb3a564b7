/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

/*
 * "The past opens no door": who reads a state must have been allowed to then, and be allowed to
 * now. The kernel checks what a past node's attributes say (default_permissions), that is, then. What it
 * cannot see is checked here: the same objects as they are now, and the directories that were
 * above when a path enters the past half way down.
 *
 * All return 0, -EACCES or another negative errno. `mask`: R_OK, W_OK, X_OK.
 */

#include "daemon/session.h"

/* The object as it is now, wherever it is. */
int wb_past_may_now(struct wb_session *session, fuse_req_t req, struct wb_spot *spot, int mask);

/* The object as it was at the spot's own moment. */
int wb_past_could_then(struct wb_session *session, fuse_req_t req, struct wb_spot *spot, int mask);

/* Every directory above the spot could be searched then. */
int wb_past_could_reach(struct wb_session *session, fuse_req_t req, struct wb_spot *spot);
