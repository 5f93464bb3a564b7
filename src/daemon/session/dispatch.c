/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Turns the number of each FUSE request into a node and calls the operation of the node's kind (node_ops.h). A number
 * is the node's address, permuted; the kernel sends only numbers that it was given, and none after it has forgotten
 * them. Operations that change the tree exist for live nodes only; for all others they are refused here (EROFS).
 */
#include "daemon/keeper/enospc_retry.h"
#include "daemon/keeper/keeper.h"
#include "daemon/live/ops.h"
#include "daemon/session/node_ops.h"

#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <sys/ioctl.h>

static struct wb_session *session_of(fuse_req_t req)
{
    return fuse_req_userdata(req);
}

/* Of a request, before anything else. */
static struct wb_node *node_of(fuse_req_t req, fuse_ino_t ino)
{
    wb_session_note_business(session_of(req));
    wb_history_clear_error();
    if (ino == FUSE_ROOT_ID)
        return session_of(req)->root;
    return wb_node_of_ino(session_of(req), ino);
}

/* The live node, or NULL after the refusal was sent. */
static struct wb_inode *writable(fuse_req_t req, fuse_ino_t ino)
{
    struct wb_inode *inode = wb_inode_of(node_of(req, ino));

    /* The kernel lets changes pass after `mount -o remount,rw` of a read-only mount. */
    if (inode && session_of(req)->options->read_only)
        inode = NULL;
    if (!inode)
        fuse_reply_err(req, EROFS);
    return inode;
}

/* Declares session, node and the operations of its kind. */
#define WB_NODE(ino)                                                                                                   \
    WB_WITH_RELOCATE_LOCK(session_of(req));                                                                            \
    struct wb_session *session = session_of(req);                                                                      \
    struct wb_node *node = node_of(req, ino);                                                                          \
    const struct wb_node_ops *ops = wb_node_ops_of(node)

/* ---- operations of every kind ---------------------------------------------------------------- */

static void do_init(void *userdata, struct fuse_conn_info *conn)
{
    wb_session_negotiate(userdata, conn);
}

static void do_lookup(fuse_req_t req, fuse_ino_t parent, const char *name)
{
    WB_NODE(parent);

    ops->lookup(session, req, node, name);
}

static void forget(struct wb_session *session, struct wb_node *node, uint64_t count)
{
    wb_node_ops_of(node)->forget(session, node, count);
}

static void do_forget(fuse_req_t req, fuse_ino_t ino, uint64_t count)
{
    WB_WITH_RELOCATE_LOCK(session_of(req));
    forget(session_of(req), node_of(req, ino), count);
    fuse_reply_none(req);
}

static void do_forget_multi(fuse_req_t req, size_t count, struct fuse_forget_data *forgets)
{
    WB_WITH_RELOCATE_LOCK(session_of(req));
    for (size_t i = 0; i < count; i++)
        forget(session_of(req), node_of(req, forgets[i].ino), forgets[i].nlookup);
    fuse_reply_none(req);
}

static void do_getattr(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi)
{
    WB_NODE(ino);

    ops->getattr(session, req, node, fi);
}

static void do_readlink(fuse_req_t req, fuse_ino_t ino)
{
    WB_NODE(ino);

    ops->readlink(session, req, node);
}

static void do_open(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi)
{
    WB_NODE(ino);
    bool changes = (fi->flags & O_ACCMODE) != O_RDONLY || (fi->flags & O_TRUNC);

    if (session->no_open)
        fuse_reply_err(req, ENOSYS);
    else if (changes && (!wb_inode_of(node) || session->options->read_only))
        fuse_reply_err(req, EROFS);
    else
        ops->open(session, req, node, fi);
}

static void do_read(fuse_req_t req, fuse_ino_t ino, size_t size, off_t offset, struct fuse_file_info *fi)
{
    WB_NODE(ino);

    ops->read(session, req, node, size, offset, fi);
}

static void do_lseek(fuse_req_t req, fuse_ino_t ino, off_t offset, int whence, struct fuse_file_info *fi)
{
    WB_NODE(ino);

    ops->lseek(session, req, node, offset, whence, fi);
}

static void do_flush(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi)
{
    WB_NODE(ino);

    if (session->no_open)
        fuse_reply_err(req, ENOSYS);
    else
        ops->flush(session, req, node, fi);
}

static void do_fsync(fuse_req_t req, fuse_ino_t ino, int data_only, struct fuse_file_info *fi)
{
    WB_NODE(ino);

    ops->fsync(session, req, node, data_only, fi);
}

static void do_release(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi)
{
    WB_NODE(ino);

    ops->release(session, req, node, fi);
}

static void do_opendir(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi)
{
    WB_NODE(ino);

    if (session->no_open)
        fuse_reply_err(req, ENOSYS);
    else
        ops->opendir(session, req, node, fi);
}

static void do_readdir(fuse_req_t req, fuse_ino_t ino, size_t size, off_t offset, struct fuse_file_info *fi)
{
    WB_NODE(ino);

    ops->readdir(session, req, node, size, offset, fi);
}

static void do_readdirplus(fuse_req_t req, fuse_ino_t ino, size_t size, off_t offset, struct fuse_file_info *fi)
{
    WB_NODE(ino);

    ops->readdirplus(session, req, node, size, offset, fi);
}

static void do_fsyncdir(fuse_req_t req, fuse_ino_t ino, int data_only, struct fuse_file_info *fi)
{
    WB_NODE(ino);

    ops->fsyncdir(session, req, node, data_only, fi);
}

static void do_releasedir(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi)
{
    WB_NODE(ino);

    ops->releasedir(session, req, node, fi);
}

static void do_statfs(fuse_req_t req, fuse_ino_t ino)
{
    WB_WITH_RELOCATE_LOCK(session_of(req));
    node_of(req, ino); /* as before any other request; the reply is the same for all nodes */
    wb_op_statfs(session_of(req), req);
}

static void do_getxattr(fuse_req_t req, fuse_ino_t ino, const char *name, size_t size)
{
    WB_NODE(ino);

    ops->getxattr(session, req, node, name, size);
}

static void do_listxattr(fuse_req_t req, fuse_ino_t ino, size_t size)
{
    WB_NODE(ino);

    ops->listxattr(session, req, node, size);
}

static void do_ioctl(fuse_req_t req, fuse_ino_t ino, unsigned command, void *arg,
                     struct fuse_file_info *fi, unsigned flags, const void *in, size_t in_size,
                     size_t out_size)
{
    WB_NODE(ino);
    const struct wb_control *control = in;

    if (wb_is_flags_ioctl(command) && ops->flags)
        ops->flags(session, req, node, command, in, in_size);
    else if (command != WB_CONTROL_IOCTL || !S_ISDIR(node->type))
        fuse_reply_err(req, ENOTTY);
    else if ((flags & FUSE_IOCTL_COMPAT) || in_size < sizeof(*control) ||
             out_size < sizeof(*control) || control->version != WB_CONTROL_VERSION)
        fuse_reply_err(req, EINVAL);
    else
        ops->control(session, req, node, control);
}

/* ---- changes: live nodes only ---------------------------------------------------------------- */

static void do_setattr(fuse_req_t req, fuse_ino_t ino, struct stat *attr, int to_set,
                       struct fuse_file_info *fi)
{
    WB_WITH_RELOCATE_LOCK(session_of(req));
    struct wb_inode *inode = writable(req, ino);

    if (inode)
        WB_CHANGE(session_of(req), req,
                  wb_op_setattr(session_of(req), req, inode, wb_handle_of_request(fi), attr, to_set));
}

static void do_mknod(fuse_req_t req, fuse_ino_t parent, const char *name, mode_t mode, dev_t rdev)
{
    WB_WITH_RELOCATE_LOCK(session_of(req));
    struct wb_inode *dir = writable(req, parent);

    if (dir)
        WB_CHANGE(session_of(req), req, wb_op_mknod(session_of(req), req, dir, name, mode, rdev));
}

static void do_mkdir(fuse_req_t req, fuse_ino_t parent, const char *name, mode_t mode)
{
    WB_WITH_RELOCATE_LOCK(session_of(req));
    struct wb_inode *dir = writable(req, parent);

    if (dir)
        WB_CHANGE(session_of(req), req, wb_op_mkdir(session_of(req), req, dir, name, mode));
}

static void do_symlink(fuse_req_t req, const char *target, fuse_ino_t parent, const char *name)
{
    WB_WITH_RELOCATE_LOCK(session_of(req));
    struct wb_inode *dir = writable(req, parent);

    if (dir)
        WB_CHANGE(session_of(req), req, wb_op_symlink(session_of(req), req, target, dir, name));
}

static void do_create(fuse_req_t req, fuse_ino_t parent, const char *name, mode_t mode,
                      struct fuse_file_info *fi)
{
    WB_WITH_RELOCATE_LOCK(session_of(req));
    struct wb_inode *dir = writable(req, parent);

    if (dir)
        WB_CHANGE(session_of(req), req, wb_op_create(session_of(req), req, dir, name, mode, fi));
}

static void do_tmpfile(fuse_req_t req, fuse_ino_t parent, mode_t mode, struct fuse_file_info *fi)
{
    WB_WITH_RELOCATE_LOCK(session_of(req));
    struct wb_inode *dir = writable(req, parent);

    if (dir)
        WB_CHANGE(session_of(req), req, wb_op_tmpfile(session_of(req), req, dir, mode, fi));
}

static void do_unlink(fuse_req_t req, fuse_ino_t parent, const char *name)
{
    WB_WITH_RELOCATE_LOCK(session_of(req));
    struct wb_inode *dir = writable(req, parent);

    if (dir)
        WB_CHANGE(session_of(req), req, wb_op_remove(session_of(req), req, dir, name, false));
}

static void do_rmdir(fuse_req_t req, fuse_ino_t parent, const char *name)
{
    WB_WITH_RELOCATE_LOCK(session_of(req));
    struct wb_inode *dir = writable(req, parent);

    if (dir)
        WB_CHANGE(session_of(req), req, wb_op_remove(session_of(req), req, dir, name, true));
}

static void do_rename(fuse_req_t req, fuse_ino_t parent, const char *name, fuse_ino_t new_parent,
                      const char *new_name, unsigned flags)
{
    WB_WITH_RELOCATE_LOCK(session_of(req));
    struct wb_inode *from = writable(req, parent), *to;

    to = from ? writable(req, new_parent) : NULL;
    if (to)
        WB_CHANGE(session_of(req), req, wb_op_rename(session_of(req), req, from, name, to, new_name, flags));
}

static void do_link(fuse_req_t req, fuse_ino_t ino, fuse_ino_t new_parent, const char *new_name)
{
    WB_WITH_RELOCATE_LOCK(session_of(req));
    struct wb_inode *dir = writable(req, new_parent), *inode;

    inode = dir ? writable(req, ino) : NULL;
    if (inode)
        WB_CHANGE(session_of(req), req, wb_op_link(session_of(req), req, inode, dir, new_name));
}

static void do_write(fuse_req_t req, fuse_ino_t ino, const char *data, size_t size, off_t offset,
                     struct fuse_file_info *fi)
{
    WB_WITH_RELOCATE_LOCK(session_of(req));
    struct wb_inode *inode = writable(req, ino);

    if (inode)
        WB_CHANGE(session_of(req), req,
                  wb_op_write(session_of(req), req, inode, wb_handle_of_request(fi), data, size, offset, fi));
}

static void do_fallocate(fuse_req_t req, fuse_ino_t ino, int mode, off_t offset, off_t length,
                         struct fuse_file_info *fi)
{
    WB_WITH_RELOCATE_LOCK(session_of(req));
    struct wb_inode *inode = writable(req, ino);

    if (inode)
        WB_CHANGE(session_of(req), req,
                  wb_op_fallocate(session_of(req), req, inode, wb_handle_of_request(fi), mode, offset, length));
}

static void do_copy_file_range(fuse_req_t req, fuse_ino_t ino_in, off_t offset_in,
                               struct fuse_file_info *fi_in, fuse_ino_t ino_out, off_t offset_out,
                               struct fuse_file_info *fi_out, size_t length, int flags)
{
    WB_WITH_RELOCATE_LOCK(session_of(req));
    struct wb_inode *out = writable(req, ino_out), *in;

    if (!out)
        return;
    in = wb_inode_of(node_of(req, ino_in));
    /* Out of the past: the kernel reads and writes instead. */
    if (!in)
        fuse_reply_err(req, EOPNOTSUPP);
    else
        WB_CHANGE(session_of(req), req,
                  wb_op_copy_file_range(session_of(req), req, in, wb_handle_of_request(fi_in), offset_in, out,
                                        wb_handle_of_request(fi_out), offset_out, length, flags));
}

static void do_setxattr(fuse_req_t req, fuse_ino_t ino, const char *name, const char *value,
                        size_t size, int flags)
{
    WB_WITH_RELOCATE_LOCK(session_of(req));
    struct wb_inode *inode = writable(req, ino);

    if (inode)
        WB_CHANGE(session_of(req), req, wb_op_setxattr(session_of(req), req, inode, name, value, size, flags));
}

static void do_removexattr(fuse_req_t req, fuse_ino_t ino, const char *name)
{
    WB_WITH_RELOCATE_LOCK(session_of(req));
    struct wb_inode *inode = writable(req, ino);

    if (inode)
        WB_CHANGE(session_of(req), req, wb_op_removexattr(session_of(req), req, inode, name));
}

/* Not here: access (default_permissions), locks (the kernel's own do). */
const struct fuse_lowlevel_ops wb_fuse_ops = {
    .init = do_init,
    .lookup = do_lookup,
    .forget = do_forget,
    .forget_multi = do_forget_multi,
    .getattr = do_getattr,
    .setattr = do_setattr,
    .readlink = do_readlink,
    .mknod = do_mknod,
    .mkdir = do_mkdir,
    .unlink = do_unlink,
    .rmdir = do_rmdir,
    .symlink = do_symlink,
    .rename = do_rename,
    .link = do_link,
    .open = do_open,
    .read = do_read,
    .write = do_write,
    .flush = do_flush,
    .release = do_release,
    .fsync = do_fsync,
    .opendir = do_opendir,
    .readdir = do_readdir,
    .readdirplus = do_readdirplus,
    .releasedir = do_releasedir,
    .fsyncdir = do_fsyncdir,
    .statfs = do_statfs,
    .setxattr = do_setxattr,
    .getxattr = do_getxattr,
    .listxattr = do_listxattr,
    .removexattr = do_removexattr,
    .create = do_create,
    .ioctl = do_ioctl,
    .fallocate = do_fallocate,
    .copy_file_range = do_copy_file_range,
    .lseek = do_lseek,
    .tmpfile = do_tmpfile,
};
