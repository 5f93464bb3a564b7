/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

/*
 * The operations on live nodes. Each replies to its request. dispatch.c has turned numbers into
 * nodes and sent what concerns the past elsewhere.
 */

#include "daemon/core/access.h"
#include "daemon/core/entry.h"
#include "daemon/core/handle.h"
#include "daemon/core/number.h"
#include "daemon/core/session.h"

/* The table libfuse gets. */
extern const struct fuse_lowlevel_ops wb_fuse_ops;

/* ---- names (ops_name.c) ---------------------------------------------------------------------- */

void wb_op_lookup(struct wb_session *session, fuse_req_t req, struct wb_inode *dir, const char *name);
void wb_op_mknod(struct wb_session *session, fuse_req_t req, struct wb_inode *dir, const char *name, mode_t mode,
                 dev_t rdev);
void wb_op_mkdir(struct wb_session *session, fuse_req_t req, struct wb_inode *dir, const char *name, mode_t mode);
void wb_op_symlink(struct wb_session *session, fuse_req_t req, const char *target, struct wb_inode *dir,
                   const char *name);
void wb_op_create(struct wb_session *session, fuse_req_t req, struct wb_inode *dir, const char *name, mode_t mode,
                  struct fuse_file_info *fi);
void wb_op_tmpfile(struct wb_session *session, fuse_req_t req, struct wb_inode *dir, mode_t mode,
                   struct fuse_file_info *fi);
void wb_op_link(struct wb_session *session, fuse_req_t req, struct wb_inode *inode, struct wb_inode *dir,
                const char *name);
void wb_op_remove(struct wb_session *session, fuse_req_t req, struct wb_inode *dir, const char *name, bool is_dir);
/*
 * unlink and rmdir without the reply. `unasked`: not by the kernel, which lets nobody make anything in a directory that
 * it has removed. 0 or -errno.
 */
int wb_remove(struct wb_session *session, fuse_req_t req, struct wb_inode *dir, const char *name, bool is_dir,
              bool unasked);
void wb_op_rename(struct wb_session *session, fuse_req_t req, struct wb_inode *old_dir, const char *old_name,
                  struct wb_inode *new_dir, const char *new_name, unsigned flags);

/* ---- content (ops_data.c) -------------------------------------------------------------------- */

/*
 * The handle that a request on a live node came with; NULL: it came without one. dispatch.c and node_ops.c convert; the
 * operations are called with the handle.
 */
static inline struct wb_handle *wb_handle_of_request(const struct fuse_file_info *fi)
{
    return fi && fi->fh ? wb_published(fi->fh) : NULL;
}

/* Makes a handle of `fd` (taken over) for the caller and fills `fi`. 0 or -errno. `asked`: as of wb_handle_new. */
int wb_handle_opened(struct wb_session *session, fuse_req_t req, struct wb_inode *inode, int fd, bool asked,
                     struct fuse_file_info *fi);
/* The size becomes `size`. `fd` is open for writing, and for reading if anything can be lost.
 * `stamp`: the modification time is set even if the size is the same. `handle`: through which it is changed, if any. */
int wb_truncate(struct wb_session *session, fuse_req_t req, struct wb_inode *inode, int fd, struct wb_handle *handle,
                off_t size, bool stamp, bool kill_suidgid);
void wb_op_open(struct wb_session *session, fuse_req_t req, struct wb_inode *inode, struct fuse_file_info *fi);
/* From here on, `handle` NULL: the operation came without one. `flags`: of the caller's descriptor. */
void wb_op_read(struct wb_session *session, fuse_req_t req, struct wb_inode *inode, struct wb_handle *handle, int flags,
                size_t size, off_t offset);
/* `fi`: the flags of the caller's descriptor, and whether a mapping is written back. */
void wb_op_write(struct wb_session *session, fuse_req_t req, struct wb_inode *inode, struct wb_handle *handle,
                 const char *data, size_t size, off_t offset, const struct fuse_file_info *fi);
void wb_op_release(struct wb_session *session, fuse_req_t req, struct wb_handle *handle);
void wb_op_lseek(struct wb_session *session, fuse_req_t req, struct wb_inode *inode, struct wb_handle *handle,
                 off_t offset, int whence);
void wb_op_fallocate(struct wb_session *session, fuse_req_t req, struct wb_inode *inode, struct wb_handle *handle,
                     int mode, off_t offset, off_t length);
void wb_op_copy_file_range(struct wb_session *session, fuse_req_t req, struct wb_inode *in, struct wb_handle *from,
                           off_t offset_in, struct wb_inode *out, struct wb_handle *to, off_t offset_out,
                           size_t length, int flags);
void wb_op_fsync(struct wb_session *session, fuse_req_t req, struct wb_inode *inode, struct wb_handle *handle,
                 bool data_only);
void wb_op_fsyncdir(struct wb_session *session, fuse_req_t req, struct wb_inode *inode, struct wb_handle *handle);

/* ---- flags of the inode (ops_attr.c) --------------------------------------------------------- */

/* Whether `command` is one of FS_IOC_GETFLAGS, SETFLAGS, FSGETXATTR and FSSETXATTR. */
bool wb_is_flags_ioctl(unsigned command);
void wb_op_get_flags(struct wb_session *session, fuse_req_t req, struct wb_inode *inode, unsigned command);
/* `in`: what the caller passed, of `size` bytes. */
void wb_op_set_flags(struct wb_session *session, fuse_req_t req, struct wb_inode *inode, unsigned command,
                     const void *in, size_t size);

/* ---- attributes (ops_attr.c) ----------------------------------------------------------------- */

/* `handle`: through which the attributes are asked for or set, or NULL. */
void wb_op_getattr(struct wb_session *session, fuse_req_t req, struct wb_inode *inode, const struct wb_handle *handle);
void wb_op_setattr(struct wb_session *session, fuse_req_t req, struct wb_inode *inode, struct wb_handle *handle,
                   const struct stat *attr, int to_set);
void wb_op_readlink(struct wb_session *session, fuse_req_t req, struct wb_inode *inode);
void wb_op_statfs(struct wb_session *session, fuse_req_t req);
void wb_op_getxattr(struct wb_session *session, fuse_req_t req, struct wb_inode *inode, const char *name, size_t size);
void wb_op_listxattr(struct wb_session *session, fuse_req_t req, struct wb_inode *inode, size_t size);
void wb_op_setxattr(struct wb_session *session, fuse_req_t req, struct wb_inode *inode, const char *name,
                    const char *value, size_t size, int flags);
void wb_op_removexattr(struct wb_session *session, fuse_req_t req, struct wb_inode *inode, const char *name);

/* ---- directories (ops_dir.c) ----------------------------------------------------------------- */

void wb_op_opendir(struct wb_session *session, fuse_req_t req, struct wb_inode *inode, struct fuse_file_info *fi);
void wb_op_readdir(struct wb_session *session, fuse_req_t req, struct wb_inode *inode, struct wb_handle *handle,
                   size_t size, off_t offset, bool plus);
