/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* The flags of an inode (chattr(1)) from one file to another. */
#include "client/copy/copy.h"
#include "client/copy/flags.h"
#include "client/fd.h"
#include "wayback/flags.h"
#include <errno.h>
#include <fcntl.h>
#include <glib.h>
#include <linux/fs.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#define LOCKS (FS_IMMUTABLE_FL | FS_APPEND_FL)

struct flags {
    int flags;
    struct fsxattr fsx;
};

/* 0, -EOPNOTSUPP where the file has none, or -errno. */
static int get(int fd, struct flags *ret)
{
    *ret = (struct flags){0};
    if (ioctl(fd, FS_IOC_GETFLAGS, &ret->flags) < 0)
        return errno == ENOTTY || errno == EINVAL || errno == ENOSYS ? -EOPNOTSUPP : -errno;
    if (ioctl(fd, FS_IOC_FSGETXATTR, &ret->fsx) < 0)
        ret->fsx = (struct fsxattr){0};
    return 0;
}

/* Descriptor, with its flags, or -errno: -EOPNOTSUPP where the file has none or may not be read. */
static int open_with_flags(int held, mode_t mode, struct flags *ret)
{
    int fd, r;

    *ret = (struct flags){0};
    if (!S_ISREG(mode) && !S_ISDIR(mode))
        return -EOPNOTSUPP;
    fd = wb_held_open(held, O_RDONLY);
    if (fd < 0)
        return fd == -EACCES || fd == -EPERM ? -EOPNOTSUPP : fd;
    r = get(fd, ret);
    if (r == 0)
        return fd;
    close(fd);
    return r;
}

static bool same_fsx(const struct fsxattr *a, const struct fsxattr *b)
{
    return (a->fsx_xflags & WB_USER_XFLAGS) == (b->fsx_xflags & WB_USER_XFLAGS) && a->fsx_projid == b->fsx_projid &&
           a->fsx_extsize == b->fsx_extsize && a->fsx_cowextsize == b->fsx_cowextsize;
}

/* `have` with those of `want` that a user sets, but the locks. */
static struct fsxattr with_fsx(const struct fsxattr *have, const struct fsxattr *want)
{
    struct fsxattr fsx = *have;

    fsx.fsx_xflags = (fsx.fsx_xflags & ~(uint32_t)WB_USER_XFLAGS) | (want->fsx_xflags & WB_USER_XFLAGS);
    fsx.fsx_xflags &= ~(uint32_t)(FS_XFLAG_IMMUTABLE | FS_XFLAG_APPEND);
    fsx.fsx_projid = want->fsx_projid;
    fsx.fsx_extsize = want->fsx_extsize;
    fsx.fsx_cowextsize = want->fsx_cowextsize;
    return fsx;
}

/* The flags first: they change some of the others, and the locks come last. */
static int set(int to, const struct flags *want, struct flags *have)
{
    int locks = want->flags & LOCKS, flags;

    flags = (have->flags & ~WB_USER_FLAGS) | (want->flags & WB_USER_FLAGS & ~LOCKS);
    if ((have->flags & WB_USER_FLAGS) != (flags & WB_USER_FLAGS) && ioctl(to, FS_IOC_SETFLAGS, &flags) < 0)
        return -errno;
    if (ioctl(to, FS_IOC_FSGETXATTR, &have->fsx) == 0) {
        struct fsxattr fsx = with_fsx(&have->fsx, &want->fsx);

        if (!same_fsx(&fsx, &have->fsx) && ioctl(to, FS_IOC_FSSETXATTR, &fsx) < 0)
            return -errno;
    }
    flags |= locks;
    return locks && ioctl(to, FS_IOC_SETFLAGS, &flags) < 0 ? -errno : 0;
}

int wb_copy_flags(int from_dir, const char *from_name, int held, mode_t mode, bool dry)
{
    _cleanup_fd_ int source = wb_hold(from_dir, from_name, NULL);
    struct flags want, have;
    int from, to, r = 0;
    bool differ;

    if (source < 0)
        return source;
    from = open_with_flags(source, mode, &want);
    if (from < 0)
        return from == -EOPNOTSUPP ? 0 : from;
    close(from);
    to = open_with_flags(held, mode, &have);
    if (to < 0)
        return to == -EOPNOTSUPP ? 0 : to;
    differ = (want.flags & WB_USER_FLAGS) != (have.flags & WB_USER_FLAGS) || !same_fsx(&want.fsx, &have.fsx);
    if (differ && !dry)
        r = set(to, &want, &have);
    close(to);
    return r < 0 ? r : differ;
}

/* A copy elsewhere does without what it cannot have. */
static int forgive(int error)
{
    return error == EPERM || error == EACCES || error == EOPNOTSUPP || error == ENOTTY || error == EINVAL ? 0 : -error;
}

/* All at once, since some go only together; else each of them as far as it can be set. */
static int set_what_can_be(int fd, int have, int want)
{
    int r;

    if (have == want || ioctl(fd, FS_IOC_SETFLAGS, &want) == 0)
        return 0;
    r = forgive(errno);
    for (int bit = 0; r == 0 && bit < 31; bit++) {
        int flags = have ^ 1 << bit;

        if (!((have ^ want) & 1 << bit))
            continue;
        if (ioctl(fd, FS_IOC_SETFLAGS, &flags) == 0)
            have = flags;
        else
            r = forgive(errno);
    }
    return r;
}

int wb_copy_unlocked_flags(int from, int to, int *ret_locks)
{
    struct flags want, have;
    struct fsxattr fsx;
    int r = get(from, &want);

    *ret_locks = 0;
    if (r == 0)
        r = get(to, &have);
    if (r < 0)
        return r == -EOPNOTSUPP ? 0 : r;
    *ret_locks = want.flags & LOCKS;
    r = set_what_can_be(to, have.flags, (have.flags & ~WB_USER_FLAGS) | (want.flags & WB_USER_FLAGS & ~LOCKS));
    if (r < 0 || ioctl(to, FS_IOC_FSGETXATTR, &fsx) < 0)
        return r;
    have.fsx = fsx;
    fsx = with_fsx(&have.fsx, &want.fsx);
    return same_fsx(&fsx, &have.fsx) || ioctl(to, FS_IOC_FSSETXATTR, &fsx) == 0 ? 0 : forgive(errno);
}

int wb_set_locks(int fd, int locks)
{
    int have;

    return ioctl(fd, FS_IOC_GETFLAGS, &have) < 0 ? forgive(errno) : set_what_can_be(fd, have, have | locks);
}

/* Those flags of the second kind that no letter stands for. */
#define OTHER_XFLAGS                                                                                                   \
    (FS_XFLAG_REALTIME | FS_XFLAG_RTINHERIT | FS_XFLAG_NOSYMLINKS | FS_XFLAG_EXTSIZE | FS_XFLAG_EXTSZINHERIT |         \
     FS_XFLAG_NODEFRAG | FS_XFLAG_FILESTREAM | FS_XFLAG_COWEXTSIZE)

static void describe(const struct flags *flags, const struct flags *other, char text[WB_FLAGS_TEXT_MAX])
{
    static const struct {
        int flag;
        char letter;
    } letters[] = {
        {FS_SECRM_FL, 's'},   {FS_UNRM_FL, 'u'},   {FS_SYNC_FL, 'S'},        {FS_DIRSYNC_FL, 'D'},
        {FS_IMMUTABLE_FL, 'i'}, {FS_APPEND_FL, 'a'}, {FS_NODUMP_FL, 'd'},    {FS_NOATIME_FL, 'A'},
        {FS_COMPR_FL, 'c'},   {FS_JOURNAL_DATA_FL, 'j'}, {FS_NOTAIL_FL, 't'}, {FS_TOPDIR_FL, 'T'},
        {FS_NOCOW_FL, 'C'},   {FS_DAX_FL, 'x'},    {FS_PROJINHERIT_FL, 'P'},
    };
    const struct fsxattr *fsx = &flags->fsx, *than = &other->fsx;
    int n = 0;

    for (unsigned i = 0; i < G_N_ELEMENTS(letters); i++)
        if (flags->flags & letters[i].flag)
            text[n++] = letters[i].letter;
    if (n == 0)
        text[n++] = '-';
    text[n] = '\0';
    if (fsx->fsx_projid != than->fsx_projid)
        n += snprintf(text + n, WB_FLAGS_TEXT_MAX - (size_t)n, " project=%u", fsx->fsx_projid);
    if (fsx->fsx_extsize != than->fsx_extsize)
        n += snprintf(text + n, WB_FLAGS_TEXT_MAX - (size_t)n, " extsize=%u", fsx->fsx_extsize);
    if (fsx->fsx_cowextsize != than->fsx_cowextsize)
        n += snprintf(text + n, WB_FLAGS_TEXT_MAX - (size_t)n, " cowextsize=%u", fsx->fsx_cowextsize);
    if ((fsx->fsx_xflags ^ than->fsx_xflags) & OTHER_XFLAGS)
        snprintf(text + n, WB_FLAGS_TEXT_MAX - (size_t)n, " xflags=%#x", fsx->fsx_xflags & OTHER_XFLAGS);
}

int wb_flags_differ(int old_fd, int new_fd, char old_text[WB_FLAGS_TEXT_MAX], char new_text[WB_FLAGS_TEXT_MAX])
{
    struct flags old, new;
    int r = get(old_fd, &old);

    if (r == 0)
        r = get(new_fd, &new);
    if (r < 0)
        return r == -EOPNOTSUPP ? 0 : r;
    if ((old.flags & WB_USER_FLAGS) == (new.flags & WB_USER_FLAGS) && same_fsx(&old.fsx, &new.fsx))
        return 0;
    describe(&old, &new, old_text);
    describe(&new, &old, new_text);
    return 1;
}

int wb_unlock_flags(int held, mode_t mode, bool dry)
{
    struct flags have;
    int fd = open_with_flags(held, mode, &have), r = 0;

    if (fd < 0)
        return fd == -EOPNOTSUPP ? 0 : fd;
    if (have.flags & LOCKS) {
        have.flags &= ~LOCKS;
        r = !dry && ioctl(fd, FS_IOC_SETFLAGS, &have.flags) < 0 ? -errno : 1;
    }
    close(fd);
    return r;
}
