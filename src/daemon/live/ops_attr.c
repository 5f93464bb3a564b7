/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Attributes: getattr, setattr, readlink, statfs. */
#include "daemon/caller/creds.h"

#include "base/cleanup.h"
#include "base/io.h"
#include "base/xattr.h"
#include "daemon/core/kcache_invalidate.h"
#include "daemon/keeper/enospc_retry.h"
#include "daemon/keeper/keeper.h"
#include "daemon/live/io.h"
#include "daemon/live/mutation.h"
#include "daemon/live/ops.h"
#include "store/identity/flags.h"
#include <errno.h>
#include <fcntl.h>
#include <glib.h>
#include <limits.h>
#include <linux/fs.h>
#include <linux/limits.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

void wb_op_getattr(struct wb_session *session, fuse_req_t req, struct wb_inode *inode, const struct wb_handle *handle)
{
    struct stat st;
    int r = 0;

    if (handle) {
        if (fstat(handle->fd, &st) < 0)
            r = -errno;
        else
            wb_inode_mask_nlink(session, inode, &st);
    } else {
        r = wb_access_stat(session, inode, &st);
    }
    if (r < 0)
        fuse_reply_err(req, -r);
    else
        fuse_reply_attr(req, &st, wb_kcache_timeout(session));
}

/* ---- setattr --------------------------------------------------------------------------------- */

#define SET_OWNER (FUSE_SET_ATTR_UID | FUSE_SET_ATTR_GID)
#define SET_TIMES                                                                                  \
    (FUSE_SET_ATTR_ATIME | FUSE_SET_ATTR_MTIME | FUSE_SET_ATTR_ATIME_NOW | FUSE_SET_ATTR_MTIME_NOW)

/* A descriptor for one truncation, where none stays open without a handle. */
static int set_size_by_name(struct wb_session *session, fuse_req_t req, struct wb_inode *inode, off_t size, bool stamp,
                            bool kill_suidgid)
{
    int fd, r;

    fd = wb_open_writable(session, inode);
    if (fd < 0)
        return fd;
    r = wb_truncate(session, req, inode, fd, NULL, size, stamp, kill_suidgid);
    close(fd);
    return r;
}

static int set_size(struct wb_session *session, fuse_req_t req, struct wb_inode *inode, struct wb_handle *handle,
                    off_t size, int to_set)
{
    /* Without ATOMIC_O_TRUNC, an open with O_TRUNC looks like truncate(2), and is far more frequent. */
    bool stamp = to_set & FUSE_SET_ATTR_MTIME || (session->no_open && size == 0);
    bool kill_suidgid = to_set & FUSE_SET_ATTR_KILL_SUID;
    struct wb_io io;
    int r;

    if (!handle && !session->lowers.caches)
        return set_size_by_name(session, req, inode, size, stamp, kill_suidgid);
    r = wb_io_write(session, req, inode, handle, &io);
    if (r == 0)
        r = io.lower && io.appends ? -EPERM
                                   : wb_truncate(session, req, inode, io.fd, handle, size, stamp, kill_suidgid);
    wb_io_put(session, &io);
    return r;
}

static struct timespec time_to_set(int to_set, int set, int now, struct timespec time)
{
    if (to_set & now)
        return (struct timespec){.tv_nsec = UTIME_NOW};
    if (to_set & set)
        return time;
    return (struct timespec){.tv_nsec = UTIME_OMIT};
}

/* Owner, then mode, then times: a change of owner may clear bits of the mode, and both stamp. */
static int apply(const struct wb_mutation *mutation, const struct stat *attr, int to_set)
{
    int r;

    if (to_set & SET_OWNER) {
        uid_t uid = to_set & FUSE_SET_ATTR_UID ? attr->st_uid : (uid_t)-1;
        gid_t gid = to_set & FUSE_SET_ATTR_GID ? attr->st_gid : (gid_t)-1;

        if (fchownat(mutation->fd, "", uid, gid, AT_EMPTY_PATH | AT_SYMLINK_NOFOLLOW) < 0)
            return -errno;
    }
    if (to_set & FUSE_SET_ATTR_MODE) {
        r = wb_chmod_fd(mutation->fd, attr->st_mode & 07777);
        if (r < 0)
            return r;
    }
    if (to_set & SET_TIMES) {
        struct timespec times[2] = {
            time_to_set(to_set, FUSE_SET_ATTR_ATIME, FUSE_SET_ATTR_ATIME_NOW, attr->st_atim),
            time_to_set(to_set, FUSE_SET_ATTR_MTIME, FUSE_SET_ATTR_MTIME_NOW, attr->st_mtim),
        };

        if (utimensat(mutation->fd, "", times, AT_EMPTY_PATH) < 0)
            return -errno;
    }
    /* chown(-1, -1) comes with nothing to set, and yet clears suid and stamps. */
    if (!(to_set & (SET_OWNER | FUSE_SET_ATTR_MODE | SET_TIMES)) &&
        fchownat(mutation->fd, "", (uid_t)-1, (gid_t)-1, AT_EMPTY_PATH | AT_SYMLINK_NOFOLLOW) < 0)
        return -errno;
    return 0;
}

/*
 * Nothing to set is what chown(-1, -1) comes as: it clears suid and stamps. The kernel asks nobody's rights for it,
 * and it comes also where somebody who may write, and no more, has written. From anybody but the owner and root it is
 * nothing.
 */
static bool is_nothing(const struct wb_mutation *mutation, fuse_req_t req, int to_set)
{
    uid_t uid = fuse_req_ctx(req)->uid;

    return !(to_set & (SET_OWNER | FUSE_SET_ATTR_MODE | SET_TIMES)) && uid != 0 && uid != mutation->st.st_uid;
}

/* A change of owner by who is not in the group clears sgid, of a file that the group may not execute, too. */
static bool drops_sgid(const struct wb_mutation *mutation, fuse_req_t req)
{
    return (mutation->st.st_mode & (S_ISGID | S_IXGRP)) == S_ISGID && !S_ISDIR(mutation->st.st_mode) &&
           fuse_req_ctx(req)->uid != 0 && !wb_caller_in_group(req, mutation->st.st_gid);
}

static int set_others(struct wb_session *session, fuse_req_t req, struct wb_inode *inode, int fd,
                      const struct stat *attr, int to_set)
{
    bool owner = (to_set & SET_OWNER) || !(to_set & (FUSE_SET_ATTR_MODE | SET_TIMES));
    struct wb_mutation mutation;
    enum wb_op op = WB_OP_UTIMENS;
    struct stat wanted = *attr;
    int r;

    if (owner)
        op = WB_OP_CHOWN;
    else if (to_set & FUSE_SET_ATTR_MODE)
        op = WB_OP_CHMOD;
    r = wb_mutation_lock(&mutation, session, req, inode, fd);
    if (r < 0)
        return r;
    if (is_nothing(&mutation, req, to_set)) {
        wb_mutation_unlock(&mutation);
        return 0;
    }
    if (owner && drops_sgid(&mutation, req) && !(to_set & FUSE_SET_ATTR_MODE)) {
        wanted.st_mode = mutation.st.st_mode & ~(S_ISUID | S_ISGID);
        to_set |= FUSE_SET_ATTR_MODE;
    }
    /* chown(2) takes file capabilities away below us: recorded here, mode bits with the rest. */
    if (owner)
        r = wb_mutation_kill_privileges(&mutation, NULL);
    if (r == 0)
        r = wb_mutation_attrs(&mutation, op);
    if (r == 0)
        r = wb_mutation_end(&mutation, apply(&mutation, &wanted, to_set));
    if (to_set & FUSE_SET_ATTR_MODE)
        inode->no_privileges = false;
    wb_mutation_unlock(&mutation);
    return r;
}

static int look_after(struct wb_session *session, struct wb_inode *inode, int fd, struct stat *st)
{
    int r = -EIO;

    for (int i = 0; r < 0 && i < WB_KCACHE_LOOKS; i++)
        r = fstat(fd, st) < 0 ? -errno : 0;
    if (r == 0)
        wb_inode_mask_nlink(session, inode, st);
    return r;
}

/* A part of it may have been done: the size, or the owner without the mode. */
static void fail_setattr(struct wb_session *session, fuse_req_t req, struct wb_inode *inode, int r)
{
    wb_kcache_invalidate_attrs(session, inode);
    wb_enospc_retry_reply(req, -r);
}

/* What changes, or takes away, an extended attribute has to look for it. */
static bool looks_at_xattrs(const struct wb_session *session, int to_set)
{
    return to_set & SET_OWNER || (session->recording && to_set & FUSE_SET_ATTR_MODE);
}

void wb_op_setattr(struct wb_session *session, fuse_req_t req, struct wb_inode *inode, struct wb_handle *handle,
                   const struct stat *attr, int to_set)
{
    struct wb_access access;
    struct stat st;
    int r = 0, rest = to_set;

    if (to_set & FUSE_SET_ATTR_MODE)
        wb_io_before_chmod(session, req, inode, attr->st_mode);
    if (to_set & FUSE_SET_ATTR_SIZE) {
        r = set_size(session, req, inode, handle, attr->st_size, to_set);
        /* The time it came with has been set by it. */
        if (to_set & FUSE_SET_ATTR_MTIME_NOW)
            rest &= ~(FUSE_SET_ATTR_MTIME | FUSE_SET_ATTR_MTIME_NOW);
    }
    if (r == 0)
        r = looks_at_xattrs(session, rest) ? wb_access_get_open(session, inode, &access)
                                           : wb_access_get(session, inode, &access);
    if (r < 0) {
        fail_setattr(session, req, inode, r);
        return;
    }
    if (!(to_set & FUSE_SET_ATTR_SIZE) || (rest & (SET_OWNER | FUSE_SET_ATTR_MODE | SET_TIMES)))
        r = set_others(session, req, inode, access.fd, attr, rest);
    if (r == 0)
        r = look_after(session, inode, access.fd, &st);
    wb_access_put(session, &access);
    if (r < 0)
        fail_setattr(session, req, inode, r);
    else
        fuse_reply_attr(req, &st, wb_kcache_timeout(session));
}

/* ---- others ---------------------------------------------------------------------------------- */

void wb_op_readlink(struct wb_session *session, fuse_req_t req, struct wb_inode *inode)
{
    char target[PATH_MAX + 1];
    struct wb_access access;
    ssize_t length;
    int r;

    r = wb_access_get(session, inode, &access);
    if (r < 0) {
        fuse_reply_err(req, -r);
        return;
    }
    length = readlinkat(access.fd, "", target, PATH_MAX);
    r = length < 0 ? -errno : 0;
    wb_access_put(session, &access);
    if (r < 0) {
        fuse_reply_err(req, -r);
        return;
    }
    target[length] = '\0';
    fuse_reply_readlink(req, target);
}

/* What the history gives back when room is short is as good as free. */
static void add_reclaimable(struct wb_session *session, struct statvfs *st)
{
    uint64_t blocks = st->f_frsize > 0 ? wb_keeper_reclaimable(session) / st->f_frsize : 0;

    blocks = MIN(blocks, st->f_blocks - MIN(st->f_bfree, st->f_blocks));
    st->f_bfree += blocks;
    st->f_bavail += blocks;
}

void wb_op_statfs(struct wb_session *session, fuse_req_t req)
{
    struct statvfs st;

    if (fstatvfs(session->src_fd, &st) < 0) {
        fuse_reply_err(req, errno);
        return;
    }
    add_reclaimable(session, &st);
    fuse_reply_statfs(req, &st);
}

/* Extended attributes, POSIX ACLs among them. */

#define ACL_ACCESS "system.posix_acl_access"
#define ACL_DEFAULT "system.posix_acl_default"

/*
 * A file system without ACLs answers EOPNOTSUPP for one, and the kernel passes that error on to any caller whose rights
 * depend on it: nobody but the owner could open the file. No ACL is what is meant.
 */
static int read_error(const char *name, int error)
{
    bool acl = strcmp(name, ACL_ACCESS) == 0 || strcmp(name, ACL_DEFAULT) == 0;

    return acl && error == -EOPNOTSUPP ? -ENODATA : error;
}

void wb_op_getxattr(struct wb_session *session, fuse_req_t req, struct wb_inode *inode, const char *name, size_t size)
{
    g_autofree char *value = NULL;
    struct wb_access access;
    ssize_t length;
    int r;

    if (size > 0) {
        value = g_try_malloc(size);
        if (!value) {
            fuse_reply_err(req, ENOMEM);
            return;
        }
    }
    r = wb_access_get_open(session, inode, &access);
    if (r < 0) {
        fuse_reply_err(req, -r);
        return;
    }
    length = wb_getxattr_fd(access.fd, name, value, size);
    wb_access_put(session, &access);
    if (length < 0)
        fuse_reply_err(req, -read_error(name, (int)length));
    else if (size == 0)
        fuse_reply_xattr(req, (size_t)length);
    else
        fuse_reply_buf(req, value, (size_t)length);
}

void wb_op_listxattr(struct wb_session *session, fuse_req_t req, struct wb_inode *inode, size_t size)
{
    g_autofree char *list = g_try_malloc(XATTR_LIST_MAX);
    struct wb_access access;
    ssize_t length;
    int r = list ? wb_access_get(session, inode, &access) : -ENOMEM;

    if (r < 0) {
        fuse_reply_err(req, -r);
        return;
    }
    length = wb_listxattr_fd(access.fd, list, XATTR_LIST_MAX);
    r = (int)MIN(length, 0);
    wb_access_put(session, &access);
    if (r < 0) {
        fuse_reply_err(req, -r);
        return;
    }
    length = (ssize_t)wb_xattr_list_filter(req, list, (size_t)length);
    if (size == 0)
        fuse_reply_xattr(req, (size_t)length);
    else if (size < (size_t)length)
        fuse_reply_err(req, ERANGE);
    else
        fuse_reply_buf(req, list, (size_t)length);
}

/*
 * Setting an ACL as root does not clear sgid, as it would for a caller outside of the group. The
 * kernel decides that for us only where it may send the longer SETXATTR, which libfuse does not
 * pass on.
 */
static void clear_sgid_with_acl(struct wb_mutation *mutation, fuse_req_t req)
{
    if (!mutation->session->is_root || fuse_req_ctx(req)->uid == 0 || !(mutation->st.st_mode & S_ISGID) ||
        wb_caller_in_group(req, mutation->st.st_gid))
        return;
    if (wb_mutation_attrs(mutation, WB_OP_CHMOD) == 0)
        wb_mutation_end(mutation, wb_chmod_fd(mutation->fd, mutation->st.st_mode & 07777 & ~S_ISGID));
}

/*
 * The kernel asks nobody for rights to change attributes of system. other than ACLs: it leaves that to the file system,
 * and that of SRC would ask the daemon. As for ACLs, they are the owner's. The flags of a file (chattr) are no
 * attribute of it, though the history records them as one.
 */
static int may_change(const struct wb_mutation *mutation, fuse_req_t req, const char *name)
{
    uid_t uid = fuse_req_ctx(req)->uid;

    if (!g_str_has_prefix(name, "system.") || strcmp(name, ACL_ACCESS) == 0 || strcmp(name, ACL_DEFAULT) == 0)
        return 0;
    if (strcmp(name, WB_FLAGS_NAME) == 0)
        return -EOPNOTSUPP;
    return uid == 0 || uid == mutation->st.st_uid ? 0 : -EPERM;
}

/* `value` NULL removes. */
static void change(struct wb_session *session, fuse_req_t req, struct wb_inode *inode, const char *name,
                   const char *value, size_t size, int flags)
{
    struct wb_mutation mutation;
    struct wb_access access;
    int r;

    r = wb_access_get(session, inode, &access);
    if (r < 0) {
        fuse_reply_err(req, -r);
        return;
    }
    r = wb_mutation_lock(&mutation, session, req, inode, access.fd);
    if (r == 0) {
        if (value && strcmp(name, ACL_ACCESS) == 0)
            clear_sgid_with_acl(&mutation, req);
        r = may_change(&mutation, req, name);
        if (r == 0 && value && wb_enospc_retry_is_kept_for_root(session, req))
            r = -ENOSPC;
        if (r == 0)
            r = wb_mutation_xattr(&mutation, name, value ? WB_OP_SETXATTR : WB_OP_REMOVEXATTR);
        if (r == -ENODATA && !value) {
            /* Nothing to record; an ACL that is not there is removed with success all the same. */
            r = wb_removexattr_fd(access.fd, name);
        } else if (r == 0) {
            r = value ? wb_setxattr_fd(access.fd, name, value, size, flags) : wb_removexattr_fd(access.fd, name);
            r = wb_mutation_end(&mutation, r);
        }
        inode->no_privileges = false;
        wb_mutation_unlock(&mutation);
    }
    wb_access_put(session, &access);
    /* If it failed, its mode may be another by then. */
    wb_kcache_invalidate_attrs(session, inode);
    wb_enospc_retry_reply(req, -r);
}

void wb_op_setxattr(struct wb_session *session, fuse_req_t req, struct wb_inode *inode, const char *name,
                    const char *value, size_t size, int flags)
{
    /* It sets the mode as well. */
    if (strcmp(name, "system.posix_acl_access") == 0)
        wb_io_before_chmod(session, req, inode, 0);
    change(session, req, inode, name, value, size, flags);
}

void wb_op_removexattr(struct wb_session *session, fuse_req_t req, struct wb_inode *inode, const char *name)
{
    change(session, req, inode, name, NULL, 0, 0);
}

/*
 * Flags of an inode: chattr(1), lsattr(1), project ids. They are passed to SRC, whose file system honours them: the
 * daemon's own writes, renames and removals fail there as those of any other process, and their records are aborted.
 */

#define LOCKS (FS_IMMUTABLE_FL | FS_APPEND_FL)
#define COMPRESSION (FS_COMPR_FL | FS_NOCOMP_FL)

#define WRITER_TRIES 250
#define WRITER_PAUSE_US 4000

bool wb_is_flags_ioctl(unsigned command)
{
    return command == FS_IOC_GETFLAGS || command == FS_IOC_SETFLAGS || command == FS_IOC_FSGETXATTR ||
           command == FS_IOC_FSSETXATTR;
}

void wb_op_get_flags(struct wb_session *session, fuse_req_t req, struct wb_inode *inode, unsigned command)
{
    _cleanup_close_ int fd = wb_access_open(session, inode, O_RDONLY);
    struct fsxattr fsx = {0};
    int flags = 0;

    if (fd < 0)
        fuse_reply_err(req, -fd);
    else if (ioctl(fd, command, command == FS_IOC_GETFLAGS ? (void *)&flags : (void *)&fsx) < 0)
        fuse_reply_err(req, errno);
    else if (command == FS_IOC_GETFLAGS)
        fuse_reply_ioctl(req, 0, &flags, sizeof(flags));
    else
        fuse_reply_ioctl(req, 0, &fsx, sizeof(fsx));
}

/* ---- set ------------------------------------------------------------------------------------- */

struct wish {
    unsigned command;
    int flags;          /* also of FSSETXATTR: LOCKS, as far as they are wanted */
    struct fsxattr fsx;
};

static int wish_of(unsigned command, const void *in, size_t size, struct wish *ret)
{
    *ret = (struct wish){.command = command};
    if (size < (command == FS_IOC_SETFLAGS ? sizeof(ret->flags) : sizeof(ret->fsx)))
        return -EINVAL;
    if (command == FS_IOC_SETFLAGS) {
        memcpy(&ret->flags, in, sizeof(ret->flags));
        return 0;
    }
    memcpy(&ret->fsx, in, sizeof(ret->fsx));
    ret->flags = (ret->fsx.fsx_xflags & FS_XFLAG_IMMUTABLE ? FS_IMMUTABLE_FL : 0) |
                 (ret->fsx.fsx_xflags & FS_XFLAG_APPEND ? FS_APPEND_FL : 0);
    return 0;
}

/*
 * Bytes that a mapping has changed are in the kernel until they are written back, which an immutable file refuses: they
 * would be lost. Whoever has just closed the file is still a writer here until its RELEASE arrives.
 */
static int wait_for_writers(struct wb_session *session, struct wb_inode *inode)
{
    for (int tries = 0; tries < WRITER_TRIES; tries++) {
        if (!wb_handle_has_writer(session, inode))
            return 0;
        g_usleep(WRITER_PAUSE_US);
    }
    return -EBUSY;
}

/*
 * Without OPEN the writers are not known: bytes that mappings have changed by now are written back. The kernel sends
 * WRITE and waits, so only one thread may wait for it.
 */
static int write_mapped(struct wb_session *session, struct wb_inode *inode)
{
    if (pthread_mutex_trylock(&session->writing_back) != 0)
        return -EBUSY;
    fuse_lowlevel_notify_inval_inode(session->fuse, wb_node_ino(session, &inode->node), 0, 0);
    pthread_mutex_unlock(&session->writing_back);
    return 0;
}

static int check(const struct wb_mutation *mutation, fuse_req_t req, const struct wb_flags *old,
                 const struct wish *wish)
{
    const struct wb_inode *inode = mutation->inode;
    uid_t uid = fuse_req_ctx(req)->uid;
    uint32_t locks = (uint32_t)wish->flags & LOCKS;

    /* The kernel has asked this, of capabilities too; a request that came another way is refused here. */
    if (uid != 0 && (uid != mutation->st.st_uid || locks != (old->flags & LOCKS)))
        return -EPERM;
    /* Names that differ in case only would be one name there, and two in the history. */
    if (wish->command == FS_IOC_SETFLAGS && wish->flags & FS_CASEFOLD_FL)
        return -EOPNOTSUPP;
    /* What the store keeps as well it could never delete again. */
    if (locks & ~old->flags && (inode->dead || inode->buried == WB_BURIED_YES))
        return -EOPNOTSUPP;
    return 0;
}

/* btrfs keeps the choice of a compression as an extended attribute, which changes along with the flag. */
static int record_compression(struct wb_mutation *mutation, const struct wb_flags *old, const struct wish *wish)
{
    int r;

    if (wish->command != FS_IOC_SETFLAGS || !(((uint32_t)wish->flags ^ old->flags) & COMPRESSION))
        return 0;
    r = wb_mutation_xattr(mutation, "btrfs.compression", WB_OP_SETXATTR);
    return r < 0 ? r : wb_mutation_end(mutation, 0);
}

static int set(struct wb_mutation *mutation, fuse_req_t req, const struct wish *wish)
{
    struct wb_flags old;
    int r = wb_flags_read(mutation->fd, &old);

    if (r == 0)
        r = check(mutation, req, &old, wish);
    if (r == 0)
        r = record_compression(mutation, &old, wish);
    if (r == 0)
        r = wb_mutation_xattr(mutation, WB_FLAGS_NAME, WB_OP_SETXATTR);
    if (r < 0)
        return r;
    r = ioctl(mutation->fd, wish->command,
              wish->command == FS_IOC_SETFLAGS ? (const void *)&wish->flags : (const void *)&wish->fsx);
    return wb_mutation_end(mutation, r < 0 ? -errno : 0);
}

void wb_op_set_flags(struct wb_session *session, fuse_req_t req, struct wb_inode *inode, unsigned command,
                     const void *in, size_t size)
{
    _cleanup_close_ int fd = -1;
    struct wb_mutation mutation;
    struct wish wish;
    int r = wish_of(command, in, size, &wish);

    if (r == 0 && wish.flags & FS_IMMUTABLE_FL)
        r = session->no_open ? write_mapped(session, inode) : wait_for_writers(session, inode);
    if (r == 0) {
        fd = wb_access_open(session, inode, O_RDONLY);
        r = fd < 0 ? fd : wb_mutation_lock(&mutation, session, req, inode, fd);
    }
    if (r == 0) {
        r = set(&mutation, req, &wish);
        if (r == 0)
            inode->append_only = wish.flags & FS_APPEND_FL;
        wb_mutation_unlock(&mutation);
    }
    /* The kernel does not know that this moves the change time. */
    wb_kcache_invalidate_attrs(session, inode);
    if (r < 0)
        wb_enospc_retry_reply(req, -r);
    else
        fuse_reply_ioctl(req, 0, NULL, 0);
}
