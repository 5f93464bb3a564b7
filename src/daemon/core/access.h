/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

/*
 * From a node to its inode. No descriptor is held for a node, so each time: an open descriptor, or
 * the cached descriptor of a directory, or the parent's descriptor and the name, or the
 * graveyard; and the inode found is compared with the one meant. A name that does not verify
 * may be on its way through a rename: then the tree is stopped for a moment and looked at again.
 * Therefore never called with ns_lock or a node's lock held.
 */

#include "daemon/core/session.h"

struct wb_access {
    int fd;                  /* any descriptor of the inode, O_PATH perhaps */
    bool path_only;
    bool owned;
    struct wb_lower *lower;
    struct wb_dirfd *dirfd;
};

/* 0 or -errno (-ESTALE: it cannot be found any more). */
int wb_access_get(struct wb_session *session, struct wb_inode *inode, struct wb_access *ret);
/* The same, with a file open for reading where it lets us: for extended attributes, see wb_getxattr_fd. */
int wb_access_get_open(struct wb_session *session, struct wb_inode *inode, struct wb_access *ret);
void wb_access_put(struct wb_session *session, struct wb_access *access);

/* A new descriptor of a file or directory, opened with `flags`: descriptor or -errno. */
int wb_access_open(struct wb_session *session, struct wb_inode *inode, int flags);

/* Attributes as the user sees them: the graveyard's link and our directories are not counted. */
int wb_access_stat(struct wb_session *session, struct wb_inode *inode, struct stat *st);
void wb_inode_mask_nlink(struct wb_session *session, struct wb_inode *inode, struct stat *st);
