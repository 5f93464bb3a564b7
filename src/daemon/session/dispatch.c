/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * From numbers to nodes: the one place where a fuse_ino_t becomes a node. It is the node's address, permuted;
 * the kernel gives back only numbers it was given, and none after it has forgotten them. What
 * concerns the past, or a directory of snapshots, goes there, and whatever would change it ends here with EROFS.
 */
#include "daemon/keeper/enospc_retry.h"
#include "daemon/keeper/keeper.h"
#include "daemon/live/ops.h"
#include "daemon/live/stage.h"
#include "daemon/lookback/past_later.h"
#include "daemon/past/past.h"
#include "daemon/past/snapdir.h"

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

    /* The kernel lets changes pass after `mount -o remount,rw` of a mount that does not record. */
    if (inode && session_of(req)->options->read_only)
        inode = NULL;
    if (!inode)
        fuse_reply_err(req, EROFS);
    return inode;
}

/* Declares node and live, which is NULL for any other node. */
#define NODE(ino)                                                                                                      \
    WB_WITH_RELOCATE_LOCK(session_of(req));                                                                            \
    struct wb_session *session = session_of(req);                                                                      \
    struct wb_node *node = node_of(req, ino);                                                                          \
    struct wb_inode *inode = wb_inode_of(node)

/* One call for a live node, another for a past one. */
#define EITHER(ino, present, past)                                                                                     \
    NODE(ino);                                                                                                         \
    if (inode)                                                                                                         \
        present;                                                                                                       \
    else                                                                                                               \
        past

/* The same for directories, which may also be one of snapshots. */
#define EACH(ino, present, past, snapshots)                                                                            \
    NODE(ino);                                                                                                         \
    struct wb_past_node *snapdir = wb_snapdir_of(node);                                                                \
    if (snapdir)                                                                                                       \
        snapshots;                                                                                                     \
    else if (inode)                                                                                                    \
        present;                                                                                                       \
    else                                                                                                               \
        past

/* ---- all kinds ------------------------------------------------------------------------------- */

static void do_init(void *userdata, struct fuse_conn_info *conn)
{
    wb_session_negotiate(userdata, conn);
}

static void do_lookup(fuse_req_t req, fuse_ino_t parent, const char *name)
{
    EITHER(parent, wb_op_lookup(session, req, inode, name), wb_past_later_lookup(session, req, node, name));
}

static void forget(struct wb_session *session, struct wb_node *node, uint64_t count)
{
    struct wb_inode *inode = wb_inode_of(node);

    if (inode)
        wb_inode_forget(session, inode, count);
    else
        wb_past_forget(session, node, count);
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
    EACH(ino, wb_op_getattr(session, req, inode, fi), wb_past_later_getattr(session, req, node),
         wb_snapdir_getattr(session, req, snapdir));
}

static void do_readlink(fuse_req_t req, fuse_ino_t ino)
{
    EITHER(ino, wb_op_readlink(session, req, inode), wb_past_later_readlink(session, req, node));
}

static void do_open(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi)
{
    NODE(ino);
    bool changes = (fi->flags & O_ACCMODE) != O_RDONLY || (fi->flags & O_TRUNC);

    if (inode && (fi->flags & O_TRUNC))
        wb_keeper_throttle(session);
    if (inode && (fi->flags & O_TRUNC) && !wb_keeper_may_spend(session, fuse_req_ctx(req)->uid))
        fuse_reply_err(req, EDQUOT);
    else if (inode && !(changes && session->options->read_only))
        WB_RETRY_ON_ENOSPC(session, req, wb_op_open(session, req, inode, fi));
    else if (changes)
        fuse_reply_err(req, EROFS);
    else
        wb_past_later_open(session, req, node, fi);
}

static void do_read(fuse_req_t req, fuse_ino_t ino, size_t size, off_t offset,
                    struct fuse_file_info *fi)
{
    EITHER(ino, wb_op_read(session, req, inode, size, offset, fi), wb_past_read(session, req, node, size, offset, fi));
}

static void do_lseek(fuse_req_t req, fuse_ino_t ino, off_t offset, int whence,
                     struct fuse_file_info *fi)
{
    EITHER(ino, wb_op_lseek(session, req, offset, whence, fi),
           wb_past_lseek(session, req, node, offset, whence, fi));
}

static void do_release(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi)
{
    EITHER(ino, wb_op_release(session, req, fi),
           wb_past_release(session, req, node, fi));
}

static void do_opendir(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi)
{
    EACH(ino, wb_op_opendir(session, req, inode, fi), wb_past_later_opendir(session, req, node, fi),
         wb_snapdir_opendir(session, req, snapdir, fi));
}

static void do_readdir(fuse_req_t req, fuse_ino_t ino, size_t size, off_t offset,
                       struct fuse_file_info *fi)
{
    EACH(ino, wb_op_readdir(session, req, inode, size, offset, fi, false),
         wb_past_readdir(session, req, node, size, offset, fi),
         wb_snapdir_readdir(session, req, snapdir, size, offset, fi, false));
}

static void do_readdirplus(fuse_req_t req, fuse_ino_t ino, size_t size, off_t offset,
                           struct fuse_file_info *fi)
{
    EACH(ino, wb_op_readdir(session, req, inode, size, offset, fi, true),
         wb_past_readdirplus(session, req, node, size, offset, fi),
         wb_snapdir_readdir(session, req, snapdir, size, offset, fi, true));
}

static void do_releasedir(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi)
{
    EITHER(ino, wb_op_release(session, req, fi),
           wb_past_releasedir(session, req, node, fi));
}

static void do_statfs(fuse_req_t req, fuse_ino_t ino)
{
    EITHER(ino, wb_op_statfs(session, req),
           wb_op_statfs(session, req));
}

static void do_getxattr(fuse_req_t req, fuse_ino_t ino, const char *name, size_t size)
{
    EACH(ino, wb_op_getxattr(session, req, inode, name, size), wb_past_later_getxattr(session, req, node, name, size),
         fuse_reply_err(req, ENODATA));
}

static void reply_no_names(fuse_req_t req, size_t size)
{
    if (size == 0)
        fuse_reply_xattr(req, 0);
    else
        fuse_reply_buf(req, NULL, 0);
}

static void do_listxattr(fuse_req_t req, fuse_ino_t ino, size_t size)
{
    EACH(ino, wb_op_listxattr(session, req, inode, size), wb_past_later_listxattr(session, req, node, size),
         reply_no_names(req, size));
}

static void do_fsync(fuse_req_t req, fuse_ino_t ino, int data_only, struct fuse_file_info *fi)
{
    EITHER(ino, WB_RETRY_ON_ENOSPC(session, req, wb_op_fsync(session, req, inode, data_only, fi)),
           fuse_reply_err(req, 0));
}

static void do_fsyncdir(fuse_req_t req, fuse_ino_t ino, int data_only, struct fuse_file_info *fi)
{
    EITHER(ino, WB_RETRY_ON_ENOSPC(session, req, wb_op_fsyncdir(session, req, inode, data_only, fi)),
           fuse_reply_err(req, 0));
}

static void do_ioctl(fuse_req_t req, fuse_ino_t ino, unsigned command, void *arg,
                     struct fuse_file_info *fi, unsigned flags, const void *in, size_t in_size,
                     size_t out_size)
{
    NODE(ino);
    const struct wb_control *control = in;

    if (wb_is_flags_ioctl(command) && !wb_snapdir_of(node)) {
        if (inode && (_IOC_DIR(command) & _IOC_WRITE))
            WB_CHANGE(session, req, wb_op_set_flags(session, req, inode, command, in, in_size));
        else if (inode)
            wb_op_get_flags(session, req, inode, command);
        else
            wb_past_later_flags(session, req, node, command);
        return;
    }
    if (command != WB_CONTROL_IOCTL || !S_ISDIR(node->type))
        fuse_reply_err(req, ENOTTY);
    else if ((flags & FUSE_IOCTL_COMPAT) || in_size < sizeof(*control) ||
             out_size < sizeof(*control) || control->version != WB_CONTROL_VERSION)
        fuse_reply_err(req, EINVAL);
    else if (wb_snapdir_of(node) && control->command != WB_CONTROL_HELLO)
        fuse_reply_err(req, EOPNOTSUPP);
    else
        wb_ops_control(session, req, node, control);
}

/* ---- the present alone ----------------------------------------------------------------------- */

static void do_setattr(fuse_req_t req, fuse_ino_t ino, struct stat *attr, int to_set,
                       struct fuse_file_info *fi)
{
    WB_WITH_RELOCATE_LOCK(session_of(req));
    struct wb_inode *inode = writable(req, ino);

    if (inode)
        WB_CHANGE(session_of(req), req, wb_op_setattr(session_of(req), req, inode, attr, to_set, fi));
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
        WB_CHANGE(session_of(req), req, wb_op_write(session_of(req), req, inode, data, size, offset, fi));
}

static void do_flush(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi)
{
    EITHER(ino, WB_RETRY_ON_ENOSPC(session, req, wb_op_flush(session, req, inode, fi)), fuse_reply_err(req, 0));
}

static void do_fallocate(fuse_req_t req, fuse_ino_t ino, int mode, off_t offset, off_t length,
                         struct fuse_file_info *fi)
{
    WB_WITH_RELOCATE_LOCK(session_of(req));
    struct wb_inode *inode = writable(req, ino);

    if (inode)
        WB_CHANGE(session_of(req), req, wb_op_fallocate(session_of(req), req, inode, mode, offset, length, fi));
}

static void do_copy_file_range(fuse_req_t req, fuse_ino_t ino_in, off_t offset_in,
                               struct fuse_file_info *fi_in, fuse_ino_t ino_out, off_t offset_out,
                               struct fuse_file_info *fi_out, size_t length, int flags)
{
    WB_WITH_RELOCATE_LOCK(session_of(req));
    struct wb_inode *out = writable(req, ino_out);

    if (!out)
        return;
    /* Out of the past: the kernel reads and writes instead. */
    if (!wb_inode_of(node_of(req, ino_in)))
        fuse_reply_err(req, EOPNOTSUPP);
    else
        WB_CHANGE(session_of(req), req, wb_op_copy_file_range(session_of(req), req, offset_in, fi_in, out, offset_out,
                                                              fi_out, length, flags));
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
