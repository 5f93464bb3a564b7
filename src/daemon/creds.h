/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

/*
 * Who creates. A new inode takes owner, group, mode and default ACL from the thread that makes
 * it, so a daemon that runs as root takes on the caller's file system identity and umask for
 * exactly that one system call. Everything else is done as the daemon: the kernel has checked
 * it (default_permissions).
 */

#include "daemon/session.h"

struct wb_creds {
    bool identity; /* switched: to be switched back */
    bool groups;
};

/* `mode`: of what is to be created. 0 or -errno (nothing switched then). */
int wb_creds_enter(struct wb_creds *creds, const struct wb_session *session, fuse_req_t req,
                   mode_t mode);
void wb_creds_leave(struct wb_creds *creds);

/* Whether the caller is in the group, by its own or a supplementary one. */
bool wb_caller_in_group(fuse_req_t req, gid_t gid);
