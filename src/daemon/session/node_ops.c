/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "daemon/session/node_ops.h"

#include "daemon/keeper/enospc_retry.h"
#include "daemon/keeper/keeper.h"
#include "daemon/live/ops.h"
#include "daemon/live/stage.h"
#include "daemon/lookback/past_later.h"
#include "daemon/past/past.h"
#include "daemon/past/snapdir.h"
#include <errno.h>
#include <fcntl.h>
#include <sys/ioctl.h>

/* ---- live nodes ------------------------------------------------------------------------------ */

static void live_lookup(struct wb_session *session, fuse_req_t req, struct wb_node *dir, const char *name)
{
    wb_op_lookup(session, req, wb_inode_of(dir), name);
}

static void live_forget(struct wb_session *session, struct wb_node *node, uint64_t count)
{
    wb_inode_forget(session, wb_inode_of(node), count);
}

static void live_getattr(struct wb_session *session, fuse_req_t req, struct wb_node *node, struct fuse_file_info *fi)
{
    wb_op_getattr(session, req, wb_inode_of(node), wb_handle_of_request(fi));
}

static void live_readlink(struct wb_session *session, fuse_req_t req, struct wb_node *node)
{
    wb_op_readlink(session, req, wb_inode_of(node));
}

static void live_getxattr(struct wb_session *session, fuse_req_t req, struct wb_node *node, const char *name,
                          size_t size)
{
    wb_op_getxattr(session, req, wb_inode_of(node), name, size);
}

static void live_listxattr(struct wb_session *session, fuse_req_t req, struct wb_node *node, size_t size)
{
    wb_op_listxattr(session, req, wb_inode_of(node), size);
}

static void live_flags(struct wb_session *session, fuse_req_t req, struct wb_node *node, unsigned command,
                       const void *in, size_t size)
{
    if (_IOC_DIR(command) & _IOC_WRITE)
        WB_CHANGE(session, req, wb_op_set_flags(session, req, wb_inode_of(node), command, in, size));
    else
        wb_op_get_flags(session, req, wb_inode_of(node), command);
}

static void live_open(struct wb_session *session, fuse_req_t req, struct wb_node *node, struct fuse_file_info *fi)
{
    if (fi->flags & O_TRUNC) {
        wb_keeper_throttle(session);
        if (!wb_keeper_may_spend(session, fuse_req_ctx(req)->uid)) {
            fuse_reply_err(req, EDQUOT);
            return;
        }
    }
    WB_RETRY_ON_ENOSPC(session, req, wb_op_open(session, req, wb_inode_of(node), fi));
}

static void live_read(struct wb_session *session, fuse_req_t req, struct wb_node *node, size_t size, off_t offset,
                      struct fuse_file_info *fi)
{
    wb_op_read(session, req, wb_inode_of(node), wb_handle_of_request(fi), fi->flags, size, offset);
}

static void live_lseek(struct wb_session *session, fuse_req_t req, struct wb_node *node, off_t offset, int whence,
                       struct fuse_file_info *fi)
{
    wb_op_lseek(session, req, wb_inode_of(node), wb_handle_of_request(fi), offset, whence);
}

static void live_flush(struct wb_session *session, fuse_req_t req, struct wb_node *node, struct fuse_file_info *fi)
{
    WB_RETRY_ON_ENOSPC(session, req, wb_op_flush(session, req, wb_inode_of(node), wb_handle_of_request(fi)));
}

static void live_fsync(struct wb_session *session, fuse_req_t req, struct wb_node *node, bool data_only,
                       struct fuse_file_info *fi)
{
    WB_RETRY_ON_ENOSPC(session, req, wb_op_fsync(session, req, wb_inode_of(node), wb_handle_of_request(fi), data_only));
}

static void live_release(struct wb_session *session, fuse_req_t req, struct wb_node *node, struct fuse_file_info *fi)
{
    wb_op_release(session, req, wb_handle_of_request(fi));
}

static void live_opendir(struct wb_session *session, fuse_req_t req, struct wb_node *node, struct fuse_file_info *fi)
{
    wb_op_opendir(session, req, wb_inode_of(node), fi);
}

static void live_readdir(struct wb_session *session, fuse_req_t req, struct wb_node *node, size_t size, off_t offset,
                         struct fuse_file_info *fi)
{
    wb_op_readdir(session, req, wb_inode_of(node), wb_handle_of_request(fi), size, offset, false);
}

static void live_readdirplus(struct wb_session *session, fuse_req_t req, struct wb_node *node, size_t size,
                             off_t offset, struct fuse_file_info *fi)
{
    wb_op_readdir(session, req, wb_inode_of(node), wb_handle_of_request(fi), size, offset, true);
}

static void live_fsyncdir(struct wb_session *session, fuse_req_t req, struct wb_node *node, bool data_only,
                          struct fuse_file_info *fi)
{
    WB_RETRY_ON_ENOSPC(session, req, wb_op_fsyncdir(session, req, wb_inode_of(node), wb_handle_of_request(fi)));
}

static const struct wb_node_ops live_ops = {
    .lookup = live_lookup,
    .forget = live_forget,
    .getattr = live_getattr,
    .readlink = live_readlink,
    .getxattr = live_getxattr,
    .listxattr = live_listxattr,
    .flags = live_flags,
    .control = wb_ops_control,
    .open = live_open,
    .read = live_read,
    .lseek = live_lseek,
    .flush = live_flush,
    .fsync = live_fsync,
    .release = live_release,
    .opendir = live_opendir,
    .readdir = live_readdir,
    .readdirplus = live_readdirplus,
    .fsyncdir = live_fsyncdir,
    .releasedir = live_release,
};

/* ---- nodes of the past ----------------------------------------------------------------------- */

static void past_getattr(struct wb_session *session, fuse_req_t req, struct wb_node *node, struct fuse_file_info *fi)
{
    wb_past_later_getattr(session, req, node);
}

static void past_flags(struct wb_session *session, fuse_req_t req, struct wb_node *node, unsigned command,
                       const void *in, size_t size)
{
    wb_past_later_flags(session, req, node, command);
}

/* Nothing of the past is ever waiting to be written. */
static void past_flush(struct wb_session *session, fuse_req_t req, struct wb_node *node, struct fuse_file_info *fi)
{
    fuse_reply_err(req, 0);
}

static void past_fsync(struct wb_session *session, fuse_req_t req, struct wb_node *node, bool data_only,
                       struct fuse_file_info *fi)
{
    fuse_reply_err(req, 0);
}

static const struct wb_node_ops past_ops = {
    .lookup = wb_past_later_lookup,
    .forget = wb_past_forget,
    .getattr = past_getattr,
    .readlink = wb_past_later_readlink,
    .getxattr = wb_past_later_getxattr,
    .listxattr = wb_past_later_listxattr,
    .flags = past_flags,
    .control = wb_ops_control,
    .open = wb_past_later_open,
    .read = wb_past_later_read,
    .lseek = wb_past_later_lseek,
    .flush = past_flush,
    .fsync = past_fsync,
    .release = wb_past_release,
    .opendir = wb_past_later_opendir,
    .readdir = wb_past_later_readdir,
    .readdirplus = wb_past_later_readdirplus,
    .fsyncdir = past_fsync,
    .releasedir = wb_past_releasedir,
};

/* ---- directories of snapshots ---------------------------------------------------------------- */

static void snapdir_getattr(struct wb_session *session, fuse_req_t req, struct wb_node *node,
                            struct fuse_file_info *fi)
{
    wb_snapdir_getattr(session, req, wb_snapdir_of(node));
}

static void snapdir_getxattr(struct wb_session *session, fuse_req_t req, struct wb_node *node, const char *name,
                             size_t size)
{
    fuse_reply_err(req, ENODATA);
}

static void snapdir_listxattr(struct wb_session *session, fuse_req_t req, struct wb_node *node, size_t size)
{
    if (size == 0)
        fuse_reply_xattr(req, 0);
    else
        fuse_reply_buf(req, NULL, 0);
}

static void snapdir_control(struct wb_session *session, fuse_req_t req, struct wb_node *dir,
                            const struct wb_control *in)
{
    if (in->command == WB_CONTROL_HELLO)
        wb_ops_control(session, req, dir, in);
    else
        fuse_reply_err(req, EOPNOTSUPP);
}

static void snapdir_opendir(struct wb_session *session, fuse_req_t req, struct wb_node *node,
                            struct fuse_file_info *fi)
{
    wb_snapdir_opendir(session, req, wb_snapdir_of(node), fi);
}

static void snapdir_readdir(struct wb_session *session, fuse_req_t req, struct wb_node *node, size_t size,
                            off_t offset, struct fuse_file_info *fi)
{
    wb_snapdir_readdir(session, req, wb_snapdir_of(node), size, offset, fi, false);
}

static void snapdir_readdirplus(struct wb_session *session, fuse_req_t req, struct wb_node *node, size_t size,
                                off_t offset, struct fuse_file_info *fi)
{
    wb_snapdir_readdir(session, req, wb_snapdir_of(node), size, offset, fi, true);
}

/* It is a directory, so the kernel sends it nothing of a file; such a request ends as one about the past does. */
static const struct wb_node_ops snapdir_ops = {
    .lookup = wb_past_later_lookup,
    .forget = wb_past_forget,
    .getattr = snapdir_getattr,
    .readlink = wb_past_later_readlink,
    .getxattr = snapdir_getxattr,
    .listxattr = snapdir_listxattr,
    .control = snapdir_control,
    .open = wb_past_later_open,
    .read = wb_past_read,
    .lseek = wb_past_lseek,
    .flush = past_flush,
    .fsync = past_fsync,
    .release = wb_past_release,
    .opendir = snapdir_opendir,
    .readdir = snapdir_readdir,
    .readdirplus = snapdir_readdirplus,
    .fsyncdir = past_fsync,
    .releasedir = wb_past_releasedir,
};

const struct wb_node_ops *wb_node_ops_of(const struct wb_node *node)
{
    static const struct wb_node_ops *const kinds[] = {
        [WB_NODE_LIVE] = &live_ops,
        [WB_NODE_PAST] = &past_ops,
        [WB_NODE_SNAPDIR] = &snapdir_ops,
    };

    return kinds[node->kind];
}
