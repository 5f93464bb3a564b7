/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

/*
 * The past through FUSE: nodes of (object, T), and the operations on them. Every function that
 * takes a request replies to it. Nothing that would change a past node arrives here: dispatch.c
 * answers EROFS.
 */

#include "daemon/core/session.h"
#include "daemon/options/options.h"
#include "wayback/at_name.h"
#include "wayback/control.h"

/* False only if `name` has no mark (-o at-sign=), or none means anything: costs next to nothing. */
static inline bool wb_past_may_be_moment(const struct wb_session *session, const char *name)
{
    return session->history && !session->options->plain && wb_at_split(name, session->options->at_sign, NULL);
}

/* Whether `name` reads NAME@TIME (and there is a history): no such thing can be removed, unless a real entry has it. */
bool wb_past_is_moment(const struct wb_session *session, const char *name);

/* The bytes of NAME in NAME@TIME; all of `name` if it does not read so. */
size_t wb_past_base(const struct wb_session *session, const char *name);

/* Whether there was anything then. It cannot be changed; a real entry of that name can be created (creating.h). */
bool wb_past_exists(struct wb_session *session, fuse_req_t req, struct wb_node *dir, const char *name);

int wb_past_init(struct wb_session *session);
void wb_past_deinit(struct wb_session *session);

/*
 * `name` in `parent`, which is a past directory, one of snapshots, or a live one where no such name
 * exists and `name` has the mark. Where it means nothing, the reply is a negative entry that is not cached.
 */
void wb_past_lookup(struct wb_session *session, fuse_req_t req, struct wb_node *parent,
                    const char *name);
void wb_past_forget(struct wb_session *session, struct wb_node *node, uint64_t count);
void wb_past_getattr(struct wb_session *session, fuse_req_t req, struct wb_node *node);
void wb_past_readlink(struct wb_session *session, fuse_req_t req, struct wb_node *node);
void wb_past_open(struct wb_session *session, fuse_req_t req, struct wb_node *node,
                  struct fuse_file_info *fi);
void wb_past_read(struct wb_session *session, fuse_req_t req, struct wb_node *node, size_t size,
                  off_t offset, struct fuse_file_info *fi);
void wb_past_lseek(struct wb_session *session, fuse_req_t req, struct wb_node *node, off_t offset,
                   int whence, struct fuse_file_info *fi);
void wb_past_release(struct wb_session *session, fuse_req_t req, struct wb_node *node,
                     struct fuse_file_info *fi);
void wb_past_opendir(struct wb_session *session, fuse_req_t req, struct wb_node *node,
                     struct fuse_file_info *fi);
void wb_past_readdir(struct wb_session *session, fuse_req_t req, struct wb_node *node, size_t size,
                     off_t offset, struct fuse_file_info *fi);
void wb_past_readdirplus(struct wb_session *session, fuse_req_t req, struct wb_node *node,
                         size_t size, off_t offset, struct fuse_file_info *fi);
void wb_past_releasedir(struct wb_session *session, fuse_req_t req, struct wb_node *node,
                        struct fuse_file_info *fi);
void wb_past_getxattr(struct wb_session *session, fuse_req_t req, struct wb_node *node,
                      const char *name, size_t size);
void wb_past_listxattr(struct wb_session *session, fuse_req_t req, struct wb_node *node, size_t size);
/* FS_IOC_GETFLAGS or FS_IOC_FSGETXATTR; whatever sets flags fails with EROFS. */
void wb_past_flags(struct wb_session *session, fuse_req_t req, struct wb_node *node, unsigned command);

/*
 * WB_CONTROL_IOCTL on an open directory, live or past (ops_control.c). `in` is what the caller
 * sent, complete; the reply is a struct wb_control by fuse_reply_ioctl, or an error.
 */
void wb_ops_control(struct wb_session *session, fuse_req_t req, struct wb_node *dir,
                    const struct wb_control *in);
