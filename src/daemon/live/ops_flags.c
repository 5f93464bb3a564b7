/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Flags of an inode: chattr(1), lsattr(1), project ids. They are passed to SRC, whose file system honours them: the
 * daemon's own writes, renames and removals fail there as those of any other process, and their records are aborted.
 */
#include "daemon/core/doubt.h"
#include "daemon/keeper/again.h"
#include "daemon/live/change.h"
#include "daemon/live/ops.h"

#include "base/cleanup.h"
#include "store/identity/flags.h"
#include <errno.h>
#include <fcntl.h>
#include <glib.h>
#include <linux/fs.h>
#include <string.h>
#include <sys/ioctl.h>

#define LOCKS (FS_IMMUTABLE_FL | FS_APPEND_FL)
#define COMPRESSION (FS_COMPR_FL | FS_NOCOMP_FL)

#define WRITER_TRIES 250
#define WRITER_PAUSE_US 4000

bool wb_is_flags_ioctl(unsigned command)
{
    return command == FS_IOC_GETFLAGS || command == FS_IOC_SETFLAGS || command == FS_IOC_FSGETXATTR ||
           command == FS_IOC_FSSETXATTR;
}

void wb_op_get_flags(struct wb_session *session, fuse_req_t req, struct wb_live *live, unsigned command)
{
    _cleanup_close_ int fd = wb_access_open(session, live, O_RDONLY);
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
static int wait_for_writers(struct wb_session *session, struct wb_live *live)
{
    for (int tries = 0; tries < WRITER_TRIES; tries++) {
        if (!wb_handle_has_writer(session, live))
            return 0;
        g_usleep(WRITER_PAUSE_US);
    }
    return -EBUSY;
}

static int check(const struct wb_subject *subject, fuse_req_t req, const struct wb_flags *old, const struct wish *wish)
{
    const struct wb_live *live = subject->live;
    uid_t uid = fuse_req_ctx(req)->uid;
    uint32_t locks = (uint32_t)wish->flags & LOCKS;

    /* The kernel has asked this, of capabilities too; a request that came another way is refused here. */
    if (uid != 0 && (uid != subject->st.st_uid || locks != (old->flags & LOCKS)))
        return -EPERM;
    /* Names that differ in case only would be one name there, and two in the history. */
    if (wish->command == FS_IOC_SETFLAGS && wish->flags & FS_CASEFOLD_FL)
        return -EOPNOTSUPP;
    /* What the store keeps as well it could never delete again. */
    if (locks & ~old->flags && (live->dead || live->buried == WB_BURIED_YES))
        return -EOPNOTSUPP;
    return 0;
}

/* btrfs keeps the choice of a compression as an extended attribute, which changes along with the flag. */
static int record_compression(struct wb_subject *subject, const struct wb_flags *old, const struct wish *wish)
{
    int r;

    if (wish->command != FS_IOC_SETFLAGS || !(((uint32_t)wish->flags ^ old->flags) & COMPRESSION))
        return 0;
    r = wb_subject_xattr(subject, "btrfs.compression", WB_OP_SETXATTR);
    return r < 0 ? r : wb_subject_end(subject, 0);
}

static int set(struct wb_subject *subject, fuse_req_t req, const struct wish *wish)
{
    struct wb_flags old;
    int r = wb_flags_read(subject->fd, &old);

    if (r == 0)
        r = check(subject, req, &old, wish);
    if (r == 0)
        r = record_compression(subject, &old, wish);
    if (r == 0)
        r = wb_subject_xattr(subject, WB_FLAGS_NAME, WB_OP_SETXATTR);
    if (r < 0)
        return r;
    r = ioctl(subject->fd, wish->command,
              wish->command == FS_IOC_SETFLAGS ? (const void *)&wish->flags : (const void *)&wish->fsx);
    return wb_subject_end(subject, r < 0 ? -errno : 0);
}

void wb_op_set_flags(struct wb_session *session, fuse_req_t req, struct wb_live *live, unsigned command,
                     const void *in, size_t size)
{
    _cleanup_close_ int fd = -1;
    struct wb_subject subject;
    struct wish wish;
    int r = wish_of(command, in, size, &wish);

    if (r == 0 && wish.flags & FS_IMMUTABLE_FL)
        r = wait_for_writers(session, live);
    if (r == 0) {
        fd = wb_access_open(session, live, O_RDONLY);
        r = fd < 0 ? fd : wb_subject_lock(&subject, session, req, live, fd);
    }
    if (r == 0) {
        r = set(&subject, req, &wish);
        wb_subject_unlock(&subject);
    }
    /* The kernel does not know that this moves the change time. */
    wb_doubt_attrs(session, live);
    if (r < 0)
        wb_again_reply(req, -r);
    else
        fuse_reply_ioctl(req, 0, NULL, 0);
}
