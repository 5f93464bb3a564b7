/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

/*
 * The operations of each kind of node: one table for live nodes, one for those of the past, one for directories of
 * snapshots. dispatch.c calls them and knows no kind; a new kind of node is a new table. Operations that change the
 * tree are not here: they exist for live nodes only, and dispatch.c refuses them for all others (EROFS).
 *
 * Each replies to its request, except for `forget`. Called with relocate_lock held shared.
 */

#include "daemon/core/session.h"
#include "wayback/control.h"

struct wb_node_ops {
    void (*lookup)(struct wb_session *session, fuse_req_t req, struct wb_node *dir, const char *name);
    void (*forget)(struct wb_session *session, struct wb_node *node, uint64_t count);
    void (*getattr)(struct wb_session *session, fuse_req_t req, struct wb_node *node, struct fuse_file_info *fi);
    void (*readlink)(struct wb_session *session, fuse_req_t req, struct wb_node *node);
    void (*getxattr)(struct wb_session *session, fuse_req_t req, struct wb_node *node, const char *name, size_t size);
    void (*listxattr)(struct wb_session *session, fuse_req_t req, struct wb_node *node, size_t size);
    /* FS_IOC_GETFLAGS, FS_IOC_FSGETXATTR and what sets them (`in`, of `size` bytes). NULL: the kind has no flags. */
    void (*flags)(struct wb_session *session, fuse_req_t req, struct wb_node *node, unsigned command, const void *in,
                  size_t size);
    void (*control)(struct wb_session *session, fuse_req_t req, struct wb_node *dir, const struct wb_control *in);

    /* A file. `open` for writing is called only for live nodes of a mount that is not read-only. */
    void (*open)(struct wb_session *session, fuse_req_t req, struct wb_node *node, struct fuse_file_info *fi);
    void (*read)(struct wb_session *session, fuse_req_t req, struct wb_node *node, size_t size, off_t offset,
                 struct fuse_file_info *fi);
    void (*lseek)(struct wb_session *session, fuse_req_t req, struct wb_node *node, off_t offset, int whence,
                  struct fuse_file_info *fi);
    void (*flush)(struct wb_session *session, fuse_req_t req, struct wb_node *node, struct fuse_file_info *fi);
    void (*fsync)(struct wb_session *session, fuse_req_t req, struct wb_node *node, bool data_only,
                  struct fuse_file_info *fi);
    void (*release)(struct wb_session *session, fuse_req_t req, struct wb_node *node, struct fuse_file_info *fi);

    /* A directory. */
    void (*opendir)(struct wb_session *session, fuse_req_t req, struct wb_node *node, struct fuse_file_info *fi);
    void (*readdir)(struct wb_session *session, fuse_req_t req, struct wb_node *node, size_t size, off_t offset,
                    struct fuse_file_info *fi);
    void (*readdirplus)(struct wb_session *session, fuse_req_t req, struct wb_node *node, size_t size, off_t offset,
                        struct fuse_file_info *fi);
    void (*fsyncdir)(struct wb_session *session, fuse_req_t req, struct wb_node *node, bool data_only,
                     struct fuse_file_info *fi);
    void (*releasedir)(struct wb_session *session, fuse_req_t req, struct wb_node *node, struct fuse_file_info *fi);
};

/* Never NULL, nor is any of its functions but `flags`. */
const struct wb_node_ops *wb_node_ops_of(const struct wb_node *node);
