/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "daemon/caller/creds.h"

#include "base/io.h"
#include "base/xattr.h"
#include <errno.h>
#include <fcntl.h>
#include <glib.h>
#include <linux/capability.h>
#include <sched.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#define WB_GROUPS_MAX 1024

/* glibc's setgroups changes every thread and its setfsuid hides errors: hence raw system calls, which change the
 * calling thread alone. */


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

/*
 * The kernel sends only the first group of a caller; the others are in /proc/PID/status. They are unknown if /proc
 * hides the process (hidepid), or if the process is in a PID namespace that the daemon does not see.
 */
struct groups {
    bool complete; /* these are all */
    size_t count;
    gid_t ids[WB_GROUPS_MAX];
};

static void read_groups(fuse_req_t req, struct groups *ret)
{
    int count = fuse_req_getgroups(req, WB_GROUPS_MAX, ret->ids);

    ret->complete = count >= 0 && count <= WB_GROUPS_MAX;
    ret->count = (size_t)CLAMP(count, 0, WB_GROUPS_MAX);
}

static int take_groups(fuse_req_t req)
{
    struct groups groups;

    read_groups(req, &groups);
    return syscall(SYS_setgroups, groups.count, groups.ids) < 0 ? -errno : 0;
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

enum membership { OUTSIDE, INSIDE, UNKNOWN };

static enum membership is_member(fuse_req_t req, gid_t gid)
{
    struct groups groups;

    if (fuse_req_ctx(req)->gid == gid)
        return INSIDE;
    read_groups(req, &groups);
    for (size_t i = 0; i < groups.count; i++)
        if (groups.ids[i] == gid)
            return INSIDE;
    return groups.complete ? OUTSIDE : UNKNOWN;
}

bool wb_caller_in_group(fuse_req_t req, gid_t gid)
{
    return is_member(req, gid) == INSIDE;
}

/* What a caller may do to an inode: asked of the kernel under the caller's identity, or worked out. */

static int ask_kernel(int fd, int mask)
{
    /* glibc's faccessat looks at the mode alone where it knows no faccessat2. */
    return syscall(SYS_faccessat2, fd, "", mask, AT_EMPTY_PATH | AT_EACCESS) < 0 ? -errno : 0;
}

static int work_out(fuse_req_t req, int fd, int mask)
{
    uint8_t acl[WB_ACL_MAX];
    struct stat st;
    ssize_t n;

    if (fstat(fd, &st) < 0)
        return -errno;
    n = wb_getxattr_fd(fd, "system.posix_acl_access", acl, sizeof(acl));
    if (n < 0 && n != -ENODATA && n != -EOPNOTSUPP)
        return n == -ERANGE ? -EACCES : (int)n;
    return wb_caller_would(req, st.st_mode, st.st_uid, st.st_gid, acl, n > 0 ? (size_t)n : 0, mask)
               ? 0
               : -EACCES;
}

/*
 * With file system identity, groups and capabilities of the caller, for this thread alone. A group may have less than
 * all others, so if not all groups are known, the mode and the ACL must permit it whichever they are.
 */
static int ask_as_caller(fuse_req_t req, int fd, int mask)
{
    const struct fuse_ctx *ctx = fuse_req_ctx(req);
    struct groups groups;
    int r;

    read_groups(req, &groups);
    if (syscall(SYS_setgroups, groups.count, groups.ids) < 0)
        return -errno;
    syscall(SYS_setfsgid, ctx->gid);
    syscall(SYS_setfsuid, ctx->uid);
    r = ask_kernel(fd, mask);
    syscall(SYS_setfsuid, 0);
    syscall(SYS_setfsgid, 0);
    syscall(SYS_setgroups, (size_t)0, NULL);
    return r < 0 || groups.complete ? r : work_out(req, fd, mask);
}

/* What owner, group and all others may do, and no ACL says otherwise, anybody may: nobody's groups need be known. */
static bool is_open_to_all(int fd, int mask)
{
    mode_t want = (mode_t)(mask & 7) * 0111;
    struct stat st;
    ssize_t n;

    if (mask & W_OK || fstat(fd, &st) < 0 || (st.st_mode & want) != want)
        return false;
    n = wb_getxattr_fd(fd, "system.posix_acl_access", NULL, 0);
    return n == -ENODATA || n == -EOPNOTSUPP;
}

int wb_caller_may(const struct wb_session *session, fuse_req_t req, int fd, int mask)
{
    uid_t uid = fuse_req_ctx(req)->uid;

    if (uid == 0 || is_open_to_all(fd, mask))
        return 0;
    if (session->is_root)
        return ask_as_caller(req, fd, mask);
    return uid == geteuid() ? ask_kernel(fd, mask) : work_out(req, fd, mask);
}

/* ---- mode and ACL ---------------------------------------------------------------------------- */

/* As the kernel hands them out: a version, then entries of 8 bytes, sorted by tag. Little-endian. */
#define WB_ACL_HEAD 4
#define WB_ACL_ENTRY 8

enum { WB_ACL_USER_OBJ = 0x01, WB_ACL_USER = 0x02, WB_ACL_GROUP_OBJ = 0x04, WB_ACL_GROUP = 0x08,
       WB_ACL_MASK = 0x10, WB_ACL_OTHER = 0x20 };

struct acl_entry {
    uint16_t tag, permissions;
    uint32_t id;
};

static struct acl_entry entry_at(const uint8_t *acl, size_t offset)
{
    const uint8_t *at = acl + offset;

    return (struct acl_entry){
        .tag = (uint16_t)(at[0] | at[1] << 8),
        .permissions = (uint16_t)(at[2] | at[3] << 8),
        .id = (uint32_t)at[4] | (uint32_t)at[5] << 8 | (uint32_t)at[6] << 16 | (uint32_t)at[7] << 24,
    };
}

/* Any entry for a group of the caller's permits it; if there is one, the bits for all others do not count. */
static bool acl_would(fuse_req_t req, uint32_t mode, uint32_t gid, const uint8_t *acl, size_t length,
                      unsigned want)
{
    unsigned limit = (mode >> 3) & 7; /* the mask, where there is one */
    bool member = false, could_be_refused = false;

    for (size_t i = WB_ACL_HEAD; i + WB_ACL_ENTRY <= length; i += WB_ACL_ENTRY) {
        struct acl_entry entry = entry_at(acl, i);
        bool permits = (entry.permissions & limit & want) == want;
        enum membership mine = OUTSIDE;

        if (entry.tag == WB_ACL_USER && entry.id == fuse_req_ctx(req)->uid)
            return permits;
        if (entry.tag == WB_ACL_GROUP_OBJ)
            mine = is_member(req, gid);
        else if (entry.tag == WB_ACL_GROUP)
            mine = is_member(req, entry.id);
        if (mine == INSIDE && permits)
            return true;
        member = member || mine == INSIDE;
        could_be_refused = could_be_refused || (mine == UNKNOWN && !permits);
    }
    return !member && !could_be_refused && (mode & want) == want;
}

bool wb_caller_would(fuse_req_t req, uint32_t mode, uint32_t uid, uint32_t gid, const void *acl,
                     size_t length, int mask)
{
    unsigned want = (unsigned)mask & 7; /* R_OK, W_OK, X_OK are the bits of a mode */
    enum membership member;

    if (fuse_req_ctx(req)->uid == 0)
        return true;
    if (fuse_req_ctx(req)->uid == uid)
        return ((mode >> 6) & want) == want;
    if (length > WB_ACL_HEAD)
        return acl_would(req, mode, gid, acl, length, want);
    member = is_member(req, gid);
    return (member == OUTSIDE || ((mode >> 3) & want) == want) && (member == INSIDE || (mode & want) == want);
}

size_t wb_xattr_list_filter(fuse_req_t req, char *list, size_t length)
{
    size_t kept = 0;

    if (fuse_req_ctx(req)->uid == 0)
        return length;
    for (size_t i = 0; i < length;) {
        size_t size = strnlen(list + i, length - i) + 1;

        if (size > length - i)
            size = length - i;
        if (!g_str_has_prefix(list + i, "trusted.")) {
            memmove(list + kept, list + i, size);
            kept += size;
        }
        i += size;
    }
    return kept;
}
