/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "daemon/system/mount_limits.h"

#include <errno.h>
#include <sys/stat.h>
#include <sys/statvfs.h>

int wb_mount_limits_add(struct wb_mount_limits *limits, int fd)
{
    struct statvfs fs;
    struct stat st;
    bool foreign;

    if (fstatvfs(fd, &fs) < 0 || fstat(fd, &st) < 0)
        return -errno;
    foreign = st.st_uid != 0;
    limits->nosuid = limits->nosuid || foreign || fs.f_flag & ST_NOSUID;
    limits->nodev = limits->nodev || foreign || fs.f_flag & ST_NODEV;
    limits->noexec = limits->noexec || fs.f_flag & ST_NOEXEC;
    return 0;
}

static bool is_limited(enum wb_permit permit, bool limited)
{
    return permit == WB_PERMIT_DEFAULT ? limited : permit == WB_PERMIT_NO;
}

void wb_mount_limits_finish(struct wb_mount_limits *limits, const struct wb_options *options)
{
    bool shows_moment = options->at || options->branch;

    limits->nosuid = is_limited(options->suid, limits->nosuid || shows_moment);
    limits->nodev = is_limited(options->dev, limits->nodev || shows_moment);
    limits->noexec = is_limited(options->exec, limits->noexec);
}
