/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

/*
 * The mount helper: a process beside root's daemon that keeps CAP_SYS_ADMIN, which the daemon gives up. It knows three
 * requests about this mount, none of which has an argument, and the four calls about extended attributes that need the
 * capability, of an object by its descriptor. It reads nothing of the tree, and ends with the daemon.
 */

#include "daemon/core/session.h"

struct wb_helper;

enum wb_helper_request {
    WB_HELPER_LEAVE,           /* writes back what the mount has, and detaches it, or the overlay above it */
    WB_HELPER_DETACH,          /* detaches the mount                                                      */
    WB_HELPER_DETACH_REPLACED, /* the same of one that has replaced a dead mount (covered.h)              */
    WB_HELPER_XATTR,           /* the first of the calls of enum wb_xattr_call                            */
};

/*
 * For a session of root's that is mounted, before there are other threads and before capabilities are given up. The
 * extended attributes of this process go through it from now on. 0, or -errno with a line in `why`.
 */
int wb_helper_start(struct wb_session *session, struct wb_error *why);

/* Waits for the answer: 0 or -errno; -EIO: there is no helper any more. */
int wb_helper_ask(struct wb_helper *helper, enum wb_helper_request request);

/* What LEAVE does, in the calling process. */
int wb_helper_leave(const struct wb_session *session);

/* Ends it. Returns NULL. */
struct wb_helper *wb_helper_free(struct wb_helper *helper);
