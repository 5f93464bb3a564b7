/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

/*
 * Who creates. A new inode takes owner, group, mode and default ACL from the thread that makes
 * it, so a daemon that runs as root takes on the caller's file system identity and umask for
 * exactly that one system call. Everything else is done as the daemon: the kernel has checked
 * it (default_permissions), or is asked here what the caller may do.
 */

#include "daemon/core/session.h"

struct wb_creds {
    bool identity; /* switched: to be switched back */
    bool groups;
};

/* `mode`: of what is to be created. 0 or -errno (nothing switched then). */
int wb_creds_enter(struct wb_creds *creds, const struct wb_session *session, fuse_req_t req,
                   mode_t mode);
/* The same without other groups, after the request may have been answered. */
int wb_creds_enter_caller(struct wb_creds *creds, const struct wb_session *session, const struct fuse_ctx *caller);
void wb_creds_leave(struct wb_creds *creds);

/* Whether the caller is known to be in the group, by its own or a supplementary one. */
bool wb_caller_in_group(fuse_req_t req, gid_t gid);

/*
 * Whether the caller may do `mask` (R_OK, W_OK, X_OK) to the inode of `fd` (O_PATH will do), as it is
 * now: 0, -EACCES or another negative errno. The kernel is asked where the daemon can take the
 * caller's identity or has it; else the mode and the ACL are looked at.
 */
int wb_caller_may(const struct wb_session *session, fuse_req_t req, int fd, int mask);

/* Longer ACLs than this are refused to everybody they do not name by owner or mode. */
#define WB_ACL_MAX 4096

/* What mode, owner and access ACL (system.posix_acl_access, `length` 0: none) mean for the caller; if not all of their
 * groups are known, false unless it is true whichever they are. */
bool wb_caller_would(fuse_req_t req, uint32_t mode, uint32_t uid, uint32_t gid, const void *acl,
                     size_t length, int mask);

/* Takes the names out of a list that a caller without privileges is not shown: root's daemon sees
 * trusted.*. Returns the length that is left. */
size_t wb_xattr_list_filter(fuse_req_t req, char *list, size_t length);
