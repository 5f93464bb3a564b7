/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

/* Entries of directories and the numbers in them, as the kernel is given them. */

#include "daemon/core/session.h"

/* `.wayback` and `.wayback-staging` in the root are ours alone. */
bool wb_name_is_hidden(const struct wb_session *session, const struct wb_inode *dir, const char *name);

/*
 * Looks dir_fd/name up and fills `entry`; the node has one more reference of the kernel (forget it
 * if the entry is not sent). *ret, if given, is referenced for the caller. 0 or -errno.
 */
int wb_entry_fill(struct wb_session *session, struct wb_inode *dir, int dir_fd, const char *name,
                  struct fuse_entry_param *entry, struct wb_inode **ret);
/* The same of what a change has just made there, more than once if need be; where it fails all the same the kernel
 * forgets what it believed of the name. */
int wb_entry_fill_made(struct wb_session *session, struct wb_inode *dir, int dir_fd, const char *name,
                       struct fuse_entry_param *entry, struct wb_inode **ret);
/* The same for an inode without a name, from its own descriptor. */
int wb_entry_fill_nameless(struct wb_session *session, int fd, struct fuse_entry_param *entry, struct wb_inode **ret);

/* Inode number for users: bit 63 and a hash of (object, T). */
ino_t wb_past_ino(struct wb_object object, int64_t when);

/*
 * Distinguishes a node from others that had or will have its number, which is an address: a file handle
 * (name_to_handle_at, NFS) that outlives the node must not open another node at that address. The kernel keeps 32 bits
 * of it. `when`: WB_WHEN_PRESENT for a live node.
 */
uint64_t wb_node_generation(struct wb_object object, int64_t when);
