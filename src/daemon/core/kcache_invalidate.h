/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

/*
 * Invalidates the kernel's cache after an operation that ends with an error although something was changed, or may have
 * been. The kernel keeps names and attributes for a day, and forgets none of them because of an error.
 */

#include "daemon/core/session.h"

/* How many times the result of a change that was made is looked at before the caller gets an error. */
#define WB_KCACHE_LOOKS 3

/* Attributes of the node, which may be NULL, are asked for anew. Before the reply. */
void wb_kcache_invalidate_attrs(struct wb_session *session, struct wb_inode *inode);

/*
 * The pages of the file from `offset` on, and its attributes. In a thread of its own: the kernel holds pages for as
 * long as it waits for requests, which may need the caller's thread.
 */
void wb_kcache_invalidate_content(struct wb_session *session, struct wb_inode *inode, off_t offset);

/* The same of the directory, and the name in it, be it there or not. */
void wb_kcache_invalidate_name(struct wb_session *session, struct wb_inode *dir, const char *name);

/* Until all names are forgotten; when no request is served any more. */
void wb_kcache_invalidate_wait(struct wb_session *session);
