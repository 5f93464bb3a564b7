/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

/* Paths of the present inside of a request: the kernel checks nothing on these. */

#include "daemon/core/session.h"

/*
 * The node of the last directory of `path`, referenced, and the last component, to g_free. `start` is live. As the
 * caller of `req`, with the right to search each directory; NULL: without that check. -EROFS where a component
 * means the past.
 */
int wb_walk(struct wb_session *session, fuse_req_t req, struct wb_inode *start, const char *path,
            struct wb_inode **ret_dir, char **ret_name);
