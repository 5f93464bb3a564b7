/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Attributes: getattr, setattr, readlink, statfs. */
#include "daemon/caller/creds.h"
#include "daemon/core/doubt.h"
#include "daemon/keeper/again.h"
#include "daemon/keeper/keeper.h"
#include "daemon/live/change.h"
#include "daemon/live/ops.h"

#include "base/io.h"
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <unistd.h>

void wb_op_getattr(struct wb_session *session, fuse_req_t req, struct wb_live *live,
                   struct fuse_file_info *fi)
{
    struct stat st;
    int r = 0;

    if (fi && fi->fh) {
        if (fstat(wb_handle_of(fi->fh)->fd, &st) < 0)
            r = -errno;
        else
            wb_live_mask_nlink(session, live, &st);
    } else {
        r = wb_access_stat(session, live, &st);
    }
    if (r < 0)
        fuse_reply_err(req, -r);
    else
        fuse_reply_attr(req, &st, WB_TIMEOUT);
}

/* ---- setattr --------------------------------------------------------------------------------- */

#define SET_OWNER (FUSE_SET_ATTR_UID | FUSE_SET_ATTR_GID)
#define SET_TIMES                                                                                  \
    (FUSE_SET_ATTR_ATIME | FUSE_SET_ATTR_MTIME | FUSE_SET_ATTR_ATIME_NOW | FUSE_SET_ATTR_MTIME_NOW)

static int set_size(struct wb_session *session, fuse_req_t req, struct wb_live *live, off_t size,
                    int to_set, struct fuse_file_info *fi)
{
    bool stamp = to_set & FUSE_SET_ATTR_MTIME;
    bool kill_suidgid = to_set & FUSE_SET_ATTR_KILL_SUID;
    int fd, r;

    if (fi && fi->fh)
        return wb_truncate(session, req, live, wb_handle_of(fi->fh)->fd, size, stamp, kill_suidgid);
    fd = wb_open_writable(session, live);
    if (fd < 0)
        return fd;
    r = wb_truncate(session, req, live, fd, size, stamp, kill_suidgid);
    close(fd);
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
static int apply(const struct wb_subject *subject, const struct stat *attr, int to_set)
{
    int r;

    if (to_set & SET_OWNER) {
        uid_t uid = to_set & FUSE_SET_ATTR_UID ? attr->st_uid : (uid_t)-1;
        gid_t gid = to_set & FUSE_SET_ATTR_GID ? attr->st_gid : (gid_t)-1;

        if (fchownat(subject->fd, "", uid, gid, AT_EMPTY_PATH | AT_SYMLINK_NOFOLLOW) < 0)
            return -errno;
    }
    if (to_set & FUSE_SET_ATTR_MODE) {
        r = wb_chmod_fd(subject->fd, attr->st_mode & 07777);
        if (r < 0)
            return r;
    }
    if (to_set & SET_TIMES) {
        struct timespec times[2] = {
            time_to_set(to_set, FUSE_SET_ATTR_ATIME, FUSE_SET_ATTR_ATIME_NOW, attr->st_atim),
            time_to_set(to_set, FUSE_SET_ATTR_MTIME, FUSE_SET_ATTR_MTIME_NOW, attr->st_mtim),
        };

        if (utimensat(subject->fd, "", times, AT_EMPTY_PATH) < 0)
            return -errno;
    }
    /* chown(-1, -1) comes with nothing to set, and yet clears suid and stamps. */
    if (!(to_set & (SET_OWNER | FUSE_SET_ATTR_MODE | SET_TIMES)) &&
        fchownat(subject->fd, "", (uid_t)-1, (gid_t)-1, AT_EMPTY_PATH | AT_SYMLINK_NOFOLLOW) < 0)
        return -errno;
    return 0;
}

/*
 * Nothing to set is what chown(-1, -1) comes as: it clears suid and stamps. The kernel asks nobody's rights for it,
 * and it comes also where somebody who may write, and no more, has written. From anybody but the owner and root it is
 * nothing.
 */
static bool is_nothing(const struct wb_subject *subject, fuse_req_t req, int to_set)
{
    uid_t uid = fuse_req_ctx(req)->uid;

    return !(to_set & (SET_OWNER | FUSE_SET_ATTR_MODE | SET_TIMES)) && uid != 0 && uid != subject->st.st_uid;
}

/* A change of owner by who is not in the group clears sgid, of a file that the group may not execute, too. */
static bool drops_sgid(const struct wb_subject *subject, fuse_req_t req)
{
    return (subject->st.st_mode & (S_ISGID | S_IXGRP)) == S_ISGID && !S_ISDIR(subject->st.st_mode) &&
           fuse_req_ctx(req)->uid != 0 && !wb_caller_in_group(req, subject->st.st_gid);
}

static int set_others(struct wb_session *session, fuse_req_t req, struct wb_live *live, int fd,
                      const struct stat *attr, int to_set)
{
    bool owner = (to_set & SET_OWNER) || !(to_set & (FUSE_SET_ATTR_MODE | SET_TIMES));
    struct wb_subject subject;
    enum wb_op op = WB_OP_UTIMENS;
    struct stat wanted = *attr;
    int r;

    if (owner)
        op = WB_OP_CHOWN;
    else if (to_set & FUSE_SET_ATTR_MODE)
        op = WB_OP_CHMOD;
    r = wb_subject_lock(&subject, session, req, live, fd);
    if (r < 0)
        return r;
    if (is_nothing(&subject, req, to_set)) {
        wb_subject_unlock(&subject);
        return 0;
    }
    if (owner && drops_sgid(&subject, req) && !(to_set & FUSE_SET_ATTR_MODE)) {
        wanted.st_mode = subject.st.st_mode & ~(S_ISUID | S_ISGID);
        to_set |= FUSE_SET_ATTR_MODE;
    }
    /* chown(2) takes file capabilities away below us: recorded here, mode bits with the rest. */
    if (owner)
        r = wb_subject_kill_privileges(&subject, NULL);
    if (r == 0)
        r = wb_subject_attrs(&subject, op);
    if (r == 0)
        r = wb_subject_end(&subject, apply(&subject, &wanted, to_set));
    if (to_set & FUSE_SET_ATTR_MODE)
        live->no_privileges = false;
    wb_subject_unlock(&subject);
    return r;
}

static int look_after(struct wb_session *session, struct wb_live *live, int fd, struct stat *st)
{
    int r = -EIO;

    for (int i = 0; r < 0 && i < WB_DOUBT_LOOKS; i++)
        r = fstat(fd, st) < 0 ? -errno : 0;
    if (r == 0)
        wb_live_mask_nlink(session, live, st);
    return r;
}

/* A part of it may have been done: the size, or the owner without the mode. */
static void fail_setattr(struct wb_session *session, fuse_req_t req, struct wb_live *live, int r)
{
    wb_doubt_attrs(session, live);
    wb_again_reply(req, -r);
}

/* What changes, or takes away, an extended attribute has to look for it. */
static bool looks_at_xattrs(const struct wb_session *session, int to_set)
{
    return to_set & SET_OWNER || (session->recording && to_set & FUSE_SET_ATTR_MODE);
}

void wb_op_setattr(struct wb_session *session, fuse_req_t req, struct wb_live *live,
                   const struct stat *attr, int to_set, struct fuse_file_info *fi)
{
    struct wb_access access;
    struct stat st;
    int r = 0, rest = to_set;

    if (to_set & FUSE_SET_ATTR_SIZE) {
        r = set_size(session, req, live, attr->st_size, to_set, fi);
        /* The time it came with has been set by it. */
        if (to_set & FUSE_SET_ATTR_MTIME_NOW)
            rest &= ~(FUSE_SET_ATTR_MTIME | FUSE_SET_ATTR_MTIME_NOW);
    }
    if (r == 0)
        r = looks_at_xattrs(session, rest) ? wb_access_get_open(session, live, &access)
                                           : wb_access_get(session, live, &access);
    if (r < 0) {
        fail_setattr(session, req, live, r);
        return;
    }
    if (!(to_set & FUSE_SET_ATTR_SIZE) || (rest & (SET_OWNER | FUSE_SET_ATTR_MODE | SET_TIMES)))
        r = set_others(session, req, live, access.fd, attr, rest);
    if (r == 0)
        r = look_after(session, live, access.fd, &st);
    wb_access_put(session, &access);
    if (r < 0)
        fail_setattr(session, req, live, r);
    else
        fuse_reply_attr(req, &st, WB_TIMEOUT);
}

/* ---- others ---------------------------------------------------------------------------------- */

void wb_op_readlink(struct wb_session *session, fuse_req_t req, struct wb_live *live)
{
    char target[PATH_MAX + 1];
    struct wb_access access;
    ssize_t length;
    int r;

    r = wb_access_get(session, live, &access);
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
