/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* What a caller may do to an inode: asked of the kernel under the caller's identity, or worked out. */
#include "daemon/caller/creds.h"

#include "base/io.h"
#include "base/xattr.h"
#include <errno.h>
#include <fcntl.h>
#include <glib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#define WB_GROUPS_MAX 1024

static int ask_kernel(int fd, int mask)
{
    /* glibc's faccessat looks at the mode alone where it knows no faccessat2. */
    return syscall(SYS_faccessat2, fd, "", mask, AT_EMPTY_PATH | AT_EACCESS) < 0 ? -errno : 0;
}

/* With file system identity, groups and capabilities of the caller, for this thread alone. */
static int ask_as_caller(fuse_req_t req, int fd, int mask)
{
    const struct fuse_ctx *ctx = fuse_req_ctx(req);
    gid_t groups[WB_GROUPS_MAX];
    int count = fuse_req_getgroups(req, WB_GROUPS_MAX, groups);
    int r;

    /* Without its groups a caller may do less, never more. */
    if (count < 0)
        count = 0;
    if (count > WB_GROUPS_MAX)
        count = WB_GROUPS_MAX;
    if (syscall(SYS_setgroups, (size_t)count, groups) < 0)
        return -errno;
    syscall(SYS_setfsgid, ctx->gid);
    syscall(SYS_setfsuid, ctx->uid);
    r = ask_kernel(fd, mask);
    syscall(SYS_setfsuid, 0);
    syscall(SYS_setfsgid, 0);
    syscall(SYS_setgroups, (size_t)0, NULL);
    return r;
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

static bool acl_would(fuse_req_t req, uint32_t mode, uint32_t gid, const uint8_t *acl, size_t length,
                      unsigned want)
{
    unsigned limit = (mode >> 3) & 7; /* the mask, where there is one */
    bool member = false;

    for (size_t i = WB_ACL_HEAD; i + WB_ACL_ENTRY <= length; i += WB_ACL_ENTRY) {
        struct acl_entry entry = entry_at(acl, i);
        bool mine = false;

        if (entry.tag == WB_ACL_USER && entry.id == fuse_req_ctx(req)->uid)
            return (entry.permissions & limit & want) == want;
        if (entry.tag == WB_ACL_GROUP_OBJ)
            mine = wb_caller_in_group(req, gid);
        else if (entry.tag == WB_ACL_GROUP)
            mine = wb_caller_in_group(req, entry.id);
        if (mine && (entry.permissions & limit & want) == want)
            return true;
        member = member || mine;
    }
    return !member && (mode & want) == want;
}

bool wb_caller_would(fuse_req_t req, uint32_t mode, uint32_t uid, uint32_t gid, const void *acl,
                     size_t length, int mask)
{
    unsigned want = (unsigned)mask & 7; /* R_OK, W_OK, X_OK are the bits of a mode */

    if (fuse_req_ctx(req)->uid == 0)
        return true;
    if (fuse_req_ctx(req)->uid == uid)
        return ((mode >> 6) & want) == want;
    if (length > WB_ACL_HEAD)
        return acl_would(req, mode, gid, acl, length, want);
    if (wb_caller_in_group(req, gid))
        return ((mode >> 3) & want) == want;
    return (mode & want) == want;
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
