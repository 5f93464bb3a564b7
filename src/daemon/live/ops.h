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

/* Makes a handle of `fd` (taken over) for the caller and fills `fi`. 0 or -errno. `asked`: as of wb_handle_new. */
int wb_handle_opened(struct wb_session *session, fuse_req_t req, struct wb_inode *inode, int fd, bool asked,
                     struct fuse_file_info *fi);
/* The size becomes `size`. `fd` is open for writing, and for reading if anything can be lost.
 * `stamp`: the modification time is set even if the size is the same. */
int wb_truncate(struct wb_session *session, fuse_req_t req, struct wb_inode *inode, int fd, off_t size, bool stamp,
                bool kill_suidgid);
/*
 * A descriptor to read through, of a file or directory. It does not move the access time where `flags`, of the caller's
 * open, have O_NOATIME or the mount says so. Descriptor or -errno.
 */
int wb_open_readable(struct wb_session *session, struct wb_inode *inode, int flags);
/* A descriptor to write through, for reading as well if the file's mode lets us. */
int wb_open_writable(struct wb_session *session, struct wb_inode *inode);

void wb_op_open(struct wb_session *session, fuse_req_t req, struct wb_inode *inode, struct fuse_file_info *fi);
void wb_op_read(struct wb_session *session, fuse_req_t req, struct wb_inode *inode, size_t size, off_t offset,
                struct fuse_file_info *fi);
void wb_op_write(struct wb_session *session, fuse_req_t req, struct wb_inode *inode, const char *data, size_t size,
                 off_t offset, struct fuse_file_info *fi);
void wb_op_release(struct wb_session *session, fuse_req_t req, struct fuse_file_info *fi);
void wb_op_lseek(struct wb_session *session, fuse_req_t req, off_t offset, int whence,
                 struct fuse_file_info *fi);
void wb_op_fallocate(struct wb_session *session, fuse_req_t req, struct wb_inode *inode, int mode, off_t offset,
                     off_t length, struct fuse_file_info *fi);
void wb_op_copy_file_range(struct wb_session *session, fuse_req_t req, off_t offset_in, struct fuse_file_info *fi_in,
                           struct wb_inode *out, off_t offset_out, struct fuse_file_info *fi_out, size_t length,
                           int flags);
void wb_op_fsync(struct wb_session *session, fuse_req_t req, struct wb_inode *inode, bool data_only,
                 struct fuse_file_info *fi);
void wb_op_fsyncdir(struct wb_session *session, fuse_req_t req, struct wb_inode *inode, bool data_only,
                    struct fuse_file_info *fi);

/* ---- flags of the inode (ops_attr.c) --------------------------------------------------------- */

/* Whether `command` is one of FS_IOC_GETFLAGS, SETFLAGS, FSGETXATTR and FSSETXATTR. */
bool wb_is_flags_ioctl(unsigned command);
void wb_op_get_flags(struct wb_session *session, fuse_req_t req, struct wb_inode *inode, unsigned command);
/* `in`: what the caller passed, of `size` bytes. */
void wb_op_set_flags(struct wb_session *session, fuse_req_t req, struct wb_inode *inode, unsigned command,
                     const void *in, size_t size);

/* ---- attributes (ops_attr.c) ----------------------------------------------------------------- */

void wb_op_getattr(struct wb_session *session, fuse_req_t req, struct wb_inode *inode, struct fuse_file_info *fi);
void wb_op_setattr(struct wb_session *session, fuse_req_t req, struct wb_inode *inode, const struct stat *attr,
                   int to_set, struct fuse_file_info *fi);
void wb_op_readlink(struct wb_session *session, fuse_req_t req, struct wb_inode *inode);
void wb_op_statfs(struct wb_session *session, fuse_req_t req);
void wb_op_getxattr(struct wb_session *session, fuse_req_t req, struct wb_inode *inode, const char *name, size_t size);
void wb_op_listxattr(struct wb_session *session, fuse_req_t req, struct wb_inode *inode, size_t size);
void wb_op_setxattr(struct wb_session *session, fuse_req_t req, struct wb_inode *inode, const char *name,
                    const char *value, size_t size, int flags);
void wb_op_removexattr(struct wb_session *session, fuse_req_t req, struct wb_inode *inode, const char *name);

/* ---- directories (ops_dir.c) ----------------------------------------------------------------- */

void wb_op_opendir(struct wb_session *session, fuse_req_t req, struct wb_inode *inode, struct fuse_file_info *fi);
void wb_op_readdir(struct wb_session *session, fuse_req_t req, struct wb_inode *inode, size_t size, off_t offset,
                   struct fuse_file_info *fi, bool plus);
