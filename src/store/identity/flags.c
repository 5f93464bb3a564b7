/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "store/identity/flags.h"

#include "base/cleanup.h"
#include "base/io.h"
#include "base/xattr.h"
#include "wayback/flags.h"
#include <errno.h>
#include <fcntl.h>
#include <glib.h>
#include <linux/fs.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/stat.h>

static int error_of(int error)
{
    return error == ENOTTY || error == ENOSYS || error == EINVAL ? -EOPNOTSUPP : -error;
}

int wb_flags_read(int fd, struct wb_flags *ret)
{
    _cleanup_close_ int opened = -1;
    struct fsxattr fsx = {0};
    struct stat st;
    char path[32];
    int flags = 0;

    *ret = (struct wb_flags){0};
    if (fstat(fd, &st) < 0)
        return -errno;
    if (!S_ISREG(st.st_mode) && !S_ISDIR(st.st_mode))
        return -EOPNOTSUPP;
    if (ioctl(fd, FS_IOC_GETFLAGS, &flags) < 0) {
        if (errno != EBADF)
            return error_of(errno);
        opened = open(wb_fd_path(fd, path), O_RDONLY | O_NONBLOCK | O_CLOEXEC);
        if (opened < 0)
            return -errno;
        fd = opened;
        if (ioctl(fd, FS_IOC_GETFLAGS, &flags) < 0)
            return error_of(errno);
    }
    if (ioctl(fd, FS_IOC_FSGETXATTR, &fsx) < 0 && error_of(errno) != -EOPNOTSUPP)
        return -errno;
    ret->flags = (uint32_t)flags & WB_USER_FLAGS;
    ret->xflags = fsx.fsx_xflags & WB_USER_XFLAGS;
    ret->project = fsx.fsx_projid;
    ret->extent_size = fsx.fsx_extsize;
    ret->cow_extent_size = fsx.fsx_cowextsize;
    return 0;
}

/* ---- set ------------------------------------------------------------------------------------- */

#define LOCKS (FS_IMMUTABLE_FL | FS_APPEND_FL)
#define XLOCKS (FS_XFLAG_IMMUTABLE | FS_XFLAG_APPEND)

static int set_flags(int fd, uint32_t flags)
{
    int value = (int)flags;

    return ioctl(fd, FS_IOC_SETFLAGS, &value) < 0 ? error_of(errno) : 0;
}

/* Sets all flags at once, because some are valid only together; if that fails, each one that the file system
 * accepts. */
static int change_flags(int fd, uint32_t have, uint32_t want)
{
    int r = have == want ? 0 : set_flags(fd, want);

    if (r == 0 || r == -EPERM)
        return r;
    for (uint32_t flag = 1; flag != 0 && flag <= WB_USER_FLAGS; flag <<= 1)
        if ((have ^ want) & flag && set_flags(fd, have ^ flag) == 0)
            have ^= flag;
    return have == want ? 0 : r;
}

static int change_fsx(int fd, const struct fsxattr *have, const struct wb_flags *want)
{
    struct fsxattr fsx = *have;
    int r;

    fsx.fsx_xflags = (fsx.fsx_xflags & ~(uint32_t)WB_USER_XFLAGS) | (want->xflags & WB_USER_XFLAGS & ~XLOCKS);
    fsx.fsx_projid = want->project;
    fsx.fsx_extsize = want->extent_size;
    fsx.fsx_cowextsize = want->cow_extent_size;
    if (fsx.fsx_xflags == have->fsx_xflags && fsx.fsx_projid == have->fsx_projid &&
        fsx.fsx_extsize == have->fsx_extsize && fsx.fsx_cowextsize == have->fsx_cowextsize)
        return 0;
    if (ioctl(fd, FS_IOC_FSSETXATTR, &fsx) == 0)
        return 0;
    r = error_of(errno);
    fsx = *have;
    fsx.fsx_projid = want->project;
    if (fsx.fsx_projid != have->fsx_projid)
        (void)!ioctl(fd, FS_IOC_FSSETXATTR, &fsx);
    return r;
}

int wb_flags_set(int fd, const struct wb_flags *flags, bool locks)
{
    uint32_t want = flags->flags & WB_USER_FLAGS & ~LOCKS, lock = locks ? flags->flags & LOCKS : 0, base;
    struct wb_flags before, after;
    struct fsxattr fsx;
    int have, r = wb_flags_read(fd, &before), next;

    if (r < 0)
        return r;
    if (ioctl(fd, FS_IOC_GETFLAGS, &have) < 0)
        return error_of(errno);
    base = (uint32_t)have & ~(uint32_t)WB_USER_FLAGS;
    /* Keeps a lock that is set if nothing else has to change. */
    if (before.flags == (want | lock) && before.xflags == (lock ? flags->xflags : flags->xflags & ~XLOCKS) &&
        before.project == flags->project && before.extent_size == flags->extent_size &&
        before.cow_extent_size == flags->cow_extent_size)
        return 0;
    r = change_flags(fd, (uint32_t)have, base | want);
    if (r == -EPERM && before.flags & LOCKS)
        return r;
    /* Flags of the first kind also appear among those of the second. */
    next = ioctl(fd, FS_IOC_FSGETXATTR, &fsx) < 0 ? 0 : change_fsx(fd, &fsx, flags);
    r = r < 0 ? r : next;
    if (lock && ioctl(fd, FS_IOC_GETFLAGS, &have) == 0) {
        next = change_flags(fd, (uint32_t)have, (uint32_t)have | lock);
        r = r < 0 ? r : next;
    }
    if (r < 0)
        return r;
    r = wb_flags_read(fd, &after);
    return r < 0 ? r : memcmp(&before, &after, sizeof(before)) != 0;
}

int wb_flags_clear_locks(int held)
{
    _cleanup_close_ int fd = -1;
    struct statx stx;
    char path[32];
    int have;

    if (statx(held, "", AT_EMPTY_PATH | AT_STATX_DONT_SYNC, STATX_TYPE, &stx) < 0)
        return -errno;
    if (!(stx.stx_attributes & (STATX_ATTR_IMMUTABLE | STATX_ATTR_APPEND)) ||
        (!S_ISREG(stx.stx_mode) && !S_ISDIR(stx.stx_mode)))
        return 0;
    fd = open(wb_fd_path(held, path), O_RDONLY | O_NONBLOCK | O_CLOEXEC);
    if (fd < 0 || ioctl(fd, FS_IOC_GETFLAGS, &have) < 0)
        return -errno;
    return set_flags(fd, (uint32_t)have & ~LOCKS);
}

ssize_t wb_recorded_xattr(int fd, const char *name, void *value, size_t size)
{
    struct wb_flags flags;
    int r;

    if (strcmp(name, WB_FLAGS_NAME) != 0)
        return wb_getxattr_fd(fd, name, value, size);
    if (size < WB_FLAGS_SIZE)
        return -ERANGE;
    r = wb_flags_read(fd, &flags);
    if (r < 0)
        return r;
    wb_flags_encode(&flags, value);
    return WB_FLAGS_SIZE;
}
