/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

/*
 * Requests about the past that may have to read much of the history: they are carried out in the lane of look-backs
 * (lane.h), and workers go on with those of the present. Reads of what is open are not among them: each is of a bounded
 * number of bytes.
 *
 * Each replies, sooner or later, as the function of the same name without `later` does (past.h). The kernel keeps the
 * node until then.
 */

#include "daemon/core/session.h"

void wb_past_later_lookup(struct wb_session *session, fuse_req_t req, struct wb_node *parent, const char *name);
void wb_past_later_getattr(struct wb_session *session, fuse_req_t req, struct wb_node *node);
void wb_past_later_readlink(struct wb_session *session, fuse_req_t req, struct wb_node *node);
void wb_past_later_open(struct wb_session *session, fuse_req_t req, struct wb_node *node, struct fuse_file_info *fi);
void wb_past_later_opendir(struct wb_session *session, fuse_req_t req, struct wb_node *node, struct fuse_file_info *fi);
void wb_past_later_read(struct wb_session *session, fuse_req_t req, struct wb_node *node, size_t size, off_t offset,
                        struct fuse_file_info *fi);
void wb_past_later_lseek(struct wb_session *session, fuse_req_t req, struct wb_node *node, off_t offset, int whence,
                         struct fuse_file_info *fi);
void wb_past_later_readdir(struct wb_session *session, fuse_req_t req, struct wb_node *node, size_t size, off_t offset,
                           struct fuse_file_info *fi);
void wb_past_later_readdirplus(struct wb_session *session, fuse_req_t req, struct wb_node *node, size_t size,
                               off_t offset, struct fuse_file_info *fi);
void wb_past_later_getxattr(struct wb_session *session, fuse_req_t req, struct wb_node *node, const char *name,
                            size_t size);
void wb_past_later_listxattr(struct wb_session *session, fuse_req_t req, struct wb_node *node, size_t size);
void wb_past_later_flags(struct wb_session *session, fuse_req_t req, struct wb_node *node, unsigned command);
