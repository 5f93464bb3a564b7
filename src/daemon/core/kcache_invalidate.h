/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

/*
 * Invalidates the kernel's cache where the kernel does not do so itself, or not well enough. In a
 * mount that may change the tree, it keeps names and attributes for a day.
 *
 * - After an operation that ends with an error although something was changed, or may have been: the kernel forgets
 *   nothing because of an error.
 * - After a change of names, an extended attribute or allocated blocks, and after the write-back of a mapping: the
 *   kernel forgets the attributes, but accepts them again from the reply to a request of another thread that was
 *   answered before the change. (After a write or SETATTR it rejects such a reply.) It also rejects the replies to all
 *   requests that began before an invalidation from here.
 */

#include "daemon/core/session.h"

/*
 * For how long the kernel may cache names and attributes of the present, in seconds. A read-only mount takes no lock,
 * so the tree may be changed by another mount meanwhile: the kernel asks for each permission anew.
 */
double wb_kcache_timeout(const struct wb_session *session);

/* How many times the result of a change that was made is looked at before the caller gets an error. */
#define WB_KCACHE_LOOKS 3

/* Attributes of the node, which may be NULL, are asked for anew. After the change, before the reply. */
void wb_kcache_invalidate_attrs(struct wb_session *session, struct wb_inode *inode);

/* The same in a thread of its own: for a write-back, which the kernel may wait for to remove the inode from its cache,
 * and the invalidation waits for that. */
void wb_kcache_invalidate_attrs_later(struct wb_session *session, struct wb_inode *inode);

/* The listing of a directory, and its attributes: a name in it was changed, and not by a request of the kernel. */
void wb_kcache_invalidate_listing(struct wb_session *session, struct wb_inode *dir);

/*
 * The pages of the file from `offset` on, and its attributes. In a thread of its own: the kernel holds pages for as
 * long as it waits for requests, which may need the caller's thread.
 */
void wb_kcache_invalidate_content(struct wb_session *session, struct wb_inode *inode, off_t offset);

/* The same of the directory, and the name in it, be it there or not. */
void wb_kcache_invalidate_name(struct wb_session *session, struct wb_inode *dir, const char *name);

/* Until all names are forgotten; when no request is served any more. */
void wb_kcache_invalidate_wait(struct wb_session *session);
