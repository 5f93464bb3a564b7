/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Which directories the server of a mount may name. With allow_other, everybody can enter the mount of a user, whose
 * server is any program of that user: in its reply to HELLO it could name a directory of somebody else, and tools would
 * read or change that with the rights of their caller.
 *
 * So a server of root or of the caller may name any directory, that of another user only a directory which belongs to
 * this user; and a process that it names as its own has to be one of this user.
 */
#ifndef WAYBACK_SERVER_H
#define WAYBACK_SERVER_H

#include <stdbool.h>
#include <sys/types.h>
#include "wayback/control.h"

#define WB_SERVER_NOT_BELIEVED \
    "its server names a process or a directory that is not of the user who mounted it; run this as that user"

/* The user who mounted the FUSE file system of `fd`, according to the kernel. 0, or a negative errno. */
int wb_server_user(int fd, uid_t *ret);

/* Whether a server of this user may name the directory `fd`, which may be O_PATH. */
bool wb_server_may_name(uid_t user, int fd);

/*
 * Opens (O_PATH) the tree behind the mount of `fd` as `hello` names it, and its store (-1: it is SRC/.wayback). Use
 * these descriptors, not the names: the server can change what its own descriptors are. 0, or a negative errno;
 * -EBADMSG: the server is not believed; -EPERM: it names none to this caller.
 */
int wb_server_open(int fd, const struct wb_control_hello *hello, int *ret_tree, int *ret_store);

#endif
