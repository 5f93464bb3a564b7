/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

/*
 * Whoever reads a state of the past must have been allowed to at that time, and be allowed to
 * now. The kernel checks what a past node's attributes say (default_permissions), that is, then. What it
 * cannot see is checked here: the same objects as they are now, and the directories that were
 * above when a path enters the past half way down.
 *
 * All return 0, -EACCES or another negative errno. `mask`: R_OK, W_OK, X_OK.
 */

#include "daemon/core/session.h"

struct wb_past_node;

/* Whether the caller may access the present object, wherever it is: 0, -EACCES or another -errno. */
int wb_past_may_now(struct wb_session *session, fuse_req_t req, struct wb_revision *revision, int mask);

/* As wb_past_may_now, but the owner always may. */
int wb_past_owns_or_may_now(struct wb_session *session, fuse_req_t req, struct wb_revision *revision, int mask);

/* Whether the caller owns the object now, if it is anywhere, else then: 1, 0 or -errno. */
int wb_past_owns(struct wb_session *session, fuse_req_t req, struct wb_revision *revision);

/*
 * For what was found at `revision` by a name in the directory `dir`, which the caller may search: the directories above
 * the revision could be searched then and, where it is neither `dir` nor was in it, can be now. In the latter case
 * -ENOENT instead of -EACCES: that a closed directory had an entry of that name is not for the caller to know.
 */
int wb_past_may_enter(struct wb_session *session, fuse_req_t req, struct wb_revision *revision, struct wb_object dir);

/*
 * The past gives nobody power: a program of the past may be one whose fault was mended since, or whose set-id bit was
 * taken back. -EPERM if `node` is a file with set-id bits or file capabilities and the caller, who executes it, is not
 * root; else 0 or another negative errno.
 */
int wb_past_may_execute(struct wb_session *session, fuse_req_t req, struct wb_past_node *node);

/* A device of the past is opened by the kernel, which asks nobody what its mode is now: -EACCES for all but root. */
int wb_past_may_have_device(fuse_req_t req, const struct wb_past_node *node);
