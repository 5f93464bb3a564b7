/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "daemon/caller/creds.h"

#include <errno.h>
#include <linux/capability.h>
#include <sched.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

/* glibc's setgroups changes every thread and its setfsuid hides errors: hence raw system calls, which change the
 * calling thread alone. */

#define WB_GROUPS_MAX 1024

/* What a thread's umask is while it creates nothing. */
#define WB_RESTING_UMASK 077

static int own_umask(void)
{
    static _Thread_local bool unshared;

    /* The umask belongs to the process until the thread has a file system context of its own. */
    if (unshared)
        return 0;
    if (unshare(CLONE_FS) < 0)
        return -errno;
    unshared = true;
    return 0;
}

/*
 * setfsuid took all file system capabilities. Two come back. Access to the directory was checked
 * by the kernel with all the caller's groups and capabilities, which this thread does not have;
 * and whether the caller may make devices was checked, too. CAP_FSETID and CAP_CHOWN stay
 * away, so that sgid bits and quotas are treated as for the caller.
 */
static int keep_needed_capabilities(void)
{
    struct __user_cap_header_struct header = {.version = _LINUX_CAPABILITY_VERSION_3};
    struct __user_cap_data_struct data[2] = {{0}};
    uint32_t needed = (1u << CAP_DAC_OVERRIDE) | (1u << CAP_MKNOD);

    if (syscall(SYS_capget, &header, data) < 0)
        return -errno;
    data[0].effective |= needed & data[0].permitted;
    return syscall(SYS_capset, &header, data) < 0 ? -errno : 0;
}

static int take_groups(fuse_req_t req)
{
    gid_t groups[WB_GROUPS_MAX];
    int count = fuse_req_getgroups(req, WB_GROUPS_MAX, groups);

    if (count < 0)
        return count;
    if (count > WB_GROUPS_MAX)
        count = WB_GROUPS_MAX;
    return syscall(SYS_setgroups, (size_t)count, groups) < 0 ? -errno : 0;
}

static bool is_root_alone(const struct wb_session *session, const struct fuse_ctx *caller)
{
    return !session->is_root || (caller->uid == 0 && caller->gid == 0);
}

int wb_creds_enter_caller(struct wb_creds *creds, const struct wb_session *session, const struct fuse_ctx *caller)
{
    int r;

    *creds = (struct wb_creds){0};
    r = own_umask();
    if (r < 0)
        return r;
    umask(caller->umask & 0777);
    if (is_root_alone(session, caller))
        return 0;
    creds->identity = true;
    syscall(SYS_setfsgid, caller->gid);
    if (caller->uid == 0)
        return 0;
    syscall(SYS_setfsuid, caller->uid);
    r = keep_needed_capabilities();
    if (r < 0)
        wb_creds_leave(creds);
    return r;
}

int wb_creds_enter(struct wb_creds *creds, const struct wb_session *session, fuse_req_t req,
                   mode_t mode)
{
    const struct fuse_ctx *caller = fuse_req_ctx(req);
    bool groups = false;
    int r;

    /* The caller's other groups matter in one case only: whether a file in a directory with sgid
     * may keep its own sgid bit. Reading them from /proc is as dear as the creation itself. */
    if (!is_root_alone(session, caller) && !S_ISDIR(mode) && (mode & (S_ISGID | S_IXGRP)) == (S_ISGID | S_IXGRP))
        groups = take_groups(req) == 0;
    r = wb_creds_enter_caller(creds, session, caller);
    creds->groups = groups;
    if (r < 0)
        wb_creds_leave(creds);
    return r;
}

void wb_creds_leave(struct wb_creds *creds)
{
    if (creds->identity) {
        /* Back to 0, the file system capabilities return by themselves. */
        syscall(SYS_setfsuid, 0);
        syscall(SYS_setfsgid, 0);
    }
    if (creds->groups)
        syscall(SYS_setgroups, (size_t)0, NULL);
    umask(WB_RESTING_UMASK);
    *creds = (struct wb_creds){0};
}

bool wb_caller_in_group(fuse_req_t req, gid_t gid)
{
    gid_t groups[WB_GROUPS_MAX];
    int count;

    if (fuse_req_ctx(req)->gid == gid)
        return true;
    count = fuse_req_getgroups(req, WB_GROUPS_MAX, groups);
    for (int i = 0; i < count && i < WB_GROUPS_MAX; i++)
        if (groups[i] == gid)
            return true;
    return false;
}
