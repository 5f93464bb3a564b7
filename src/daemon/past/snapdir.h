/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

/*
 * The directory of snapshots, `.snapshot` in every live directory DIR. It lists the named snapshots that
 * cover DIR and in which DIR existed; DIR/.snapshot/NAME is DIR@NAME for each of them and for any TIME.
 * The idea is that of NetApp's filers (Hitz, Lau, Malcolm, "File System Design for an NFS File Server
 * Appliance", 1994).
 *
 * It is on no disk. A real entry of its name wins, so it is looked for only where the name was not found
 * below; and what would make, remove or rename something of its name, or in it, is refused (EROFS). Nothing of
 * it is cached by the kernel, so a snapshot is there as soon as it was made.
 *
 * Its node is counted like those of the past (past_node.h). Every function that takes a request
 * replies to it.
 */

#include "daemon/past/past_node.h"
#include "wayback/when.h"

/* Whether `name` is what the directory of snapshots is called, in any live directory of this mount. */
bool wb_snapdir_is(const struct wb_session *session, const char *name);

/* The offset behind its entry, where it is listed: after everything that is really there. No file system
 * uses it: theirs end at INT64_MAX or stay far below. */
#define WB_SNAPDIR_OFFSET (INT64_MAX - 1)

/* ---- what it lists (snapdir.c)  --------------------------------------------------------------- */

/* When something in it changed last, as far as that is known: the newest snapshot. With no_open, to the second, and
 * another time after each change. */
int64_t wb_snapdir_changed(struct wb_session *session);

/* What is listed, oldest snapshot first. */
struct wb_snapdir_listing;
int wb_snapdir_listing_new(struct wb_session *session, struct wb_past_node *node,
                           struct wb_snapdir_listing **ret);
struct wb_snapdir_listing *wb_snapdir_listing_free(struct wb_snapdir_listing *listing); /* returns NULL */

/* Entry `index`, its inode number in *ret; the name lives as long as the listing. NULL behind the last. */
const char *wb_snapdir_entry(const struct wb_snapdir_listing *listing, size_t index, ino_t *ret);

/* ---- operations (ops_snapdir.c) -------------------------------------------------------------- */

/* Inode number for users: bit 63, and different from all of the past. */
ino_t wb_snapdir_ino(struct wb_object directory);

/* Whether the caller may do `mask` to the directory it is of, as that is now. 0, -EACCES or -errno. */
int wb_snapdir_may(struct wb_session *session, fuse_req_t req, struct wb_past_node *node, int mask);

/* The directory of snapshots itself, in a live directory where nothing real has its name. */
void wb_snapdir_lookup(struct wb_session *session, fuse_req_t req, struct wb_inode *inode);
void wb_snapdir_getattr(struct wb_session *session, fuse_req_t req, struct wb_past_node *node);
void wb_snapdir_opendir(struct wb_session *session, fuse_req_t req, struct wb_past_node *node,
                        struct fuse_file_info *fi);
void wb_snapdir_readdir(struct wb_session *session, fuse_req_t req, struct wb_past_node *node,
                        size_t size, off_t offset, struct fuse_file_info *fi, bool plus);
