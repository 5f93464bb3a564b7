/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "daemon/past/past_access.h"

#include "base/cleanup.h"
#include "daemon/caller/creds.h"
#include "daemon/past/past_buried.h"
#include "daemon/past/past_node.h"
#include "wayback/when.h"
#include <errno.h>
#include <fcntl.h>
#include <glib.h>
#include <linux/limits.h>
#include <string.h>

/* Whether `path` (from the root) is what `dir` is called now. */
static bool is_at(struct wb_session *session, struct wb_spot *dir, const char *path)
{
    struct wb_location location;
    bool same = wb_spot_locate(session->history, dir, &location) == 0 &&
                location.state == WB_ALIVE && strcmp(location.path, path) == 0;

    g_free(location.path);
    return same;
}

/*
 * What has moved since may be behind directories that are closed to the caller. Where it is still
 * in the directory it was found in, that one was passed already. `fd`: of the object.
 */
static int may_reach_now(struct wb_session *session, fuse_req_t req, struct wb_spot *spot, int fd)
{
    struct wb_location location;
    g_autofree char *path = NULL;
    g_autofree char *parent = NULL;
    const char *slash;
    int r = wb_spot_locate(session->history, spot, &location);

    path = location.path;
    if (r < 0 || !wb_spot_parent(spot) || location.state == WB_GONE)
        return r;
    if (location.state == WB_BURIED && wb_past_is_buried(session, spot, fd))
        return wb_past_may_reach_buried(session, req, spot); /* removed just now */
    if (location.state == WB_BURIED)
        return wb_past_may_reach_other(session, req, spot, fd);
    slash = strrchr(path, '/');
    parent = g_strndup(path, slash ? (gsize)(slash - path) : 0);
    if (is_at(session, wb_spot_parent(spot), parent))
        return 0;
    r = wb_past_may_reach_path(session, req, path);
    return r == -ENOENT || r == -ENOTDIR ? 0 : r;
}

static int may_reach(struct wb_session *session, fuse_req_t req, struct wb_spot *spot, int fd)
{
    bool is_dir = wb_spot_type(spot) == S_IFDIR;
    struct stat st;

    if (fstat(fd, &st) < 0)
        return -errno;
    if (wb_grave_has(session->store, wb_spot_object(spot), is_dir) != 1)
        return may_reach_now(session, req, spot, fd);
    /* Owners may read what was removed, whatever lost it: they could have given themselves the right. */
    if (st.st_uid == fuse_req_ctx(req)->uid)
        return 0;
    return is_dir || st.st_nlink == 1 ? wb_past_may_reach_buried(session, req, spot)
                                      : may_reach_now(session, req, spot, fd);
}

int wb_past_may_now(struct wb_session *session, fuse_req_t req, struct wb_spot *spot, int mask)
{
    _cleanup_close_ int fd = -1;
    int r;

    if (fuse_req_ctx(req)->uid == 0)
        return 0;
    fd = wb_spot_open_present(session->history, spot, O_PATH | O_CLOEXEC);
    /* What is gone for good cannot tell whom it would let in. */
    if (fd == -EIO || fd == -ENOENT)
        return -EACCES;
    if (fd < 0)
        return fd;
    r = wb_caller_may(session, req, fd, mask);
    return r == 0 ? may_reach(session, req, spot, fd) : r;
}

int wb_past_owns(struct wb_session *session, fuse_req_t req, struct wb_spot *spot)
{
    uid_t uid = fuse_req_ctx(req)->uid;
    struct wb_attrs attrs;
    struct stat st;
    int r;
    _cleanup_close_ int fd = -1;

    if (uid == 0)
        return 1;
    fd = wb_spot_open_present(session->history, spot, O_PATH | O_CLOEXEC);
    if (fd >= 0)
        return fstat(fd, &st) < 0 ? -errno : st.st_uid == uid;
    if (fd != -EIO && fd != -ENOENT)
        return fd;
    r = wb_spot_attrs(session->history, spot, &attrs);
    return r == 0 ? attrs.uid == uid : r < 0 ? r : -EIO;
}

/* An attribute of that name at T, into `acl`; its length, 0 where there is none. */
static ssize_t read_acl(struct wb_session *session, struct wb_spot *spot, void *acl, size_t size)
{
    ssize_t n = wb_spot_getxattr(session->history, spot, "system.posix_acl_access", acl, size);

    return n == -ENODATA || n == -EOPNOTSUPP ? 0 : n;
}

int wb_past_could_then(struct wb_session *session, fuse_req_t req, struct wb_spot *spot, int mask)
{
    const struct fuse_ctx *ctx = fuse_req_ctx(req);
    struct wb_attrs attrs;
    uint8_t acl[WB_ACL_MAX];
    ssize_t length = 0;
    int r;

    if (ctx->uid == 0)
        return 0;
    r = wb_spot_attrs(session->history, spot, &attrs);
    if (r != 0)
        return r < 0 ? r : -EIO;
    if (ctx->uid != attrs.uid) {
        length = read_acl(session, spot, acl, sizeof(acl));
        if (length < 0)
            return (int)length;
    }
    return wb_caller_would(req, attrs.mode, attrs.uid, attrs.gid, acl, (size_t)length, mask) ? 0
                                                                                             : -EACCES;
}

int wb_past_could_reach(struct wb_session *session, fuse_req_t req, struct wb_spot *spot)
{
    int r = 0;

    if (fuse_req_ctx(req)->uid == 0)
        return 0;
    for (spot = wb_spot_parent(spot); r == 0 && spot; spot = wb_spot_parent(spot))
        if (wb_spot_when(spot) != WB_WHEN_PRESENT)
            r = wb_past_could_then(session, req, spot, X_OK);
    return r;
}

int wb_past_may_enter(struct wb_session *session, fuse_req_t req, struct wb_spot *spot, struct wb_object dir)
{
    struct wb_spot *at = wb_spot_parent(spot);
    int r = wb_past_could_reach(session, req, spot);

    if (fuse_req_ctx(req)->uid == 0 || !at || wb_object_equal(wb_spot_object(at), dir) ||
        wb_object_equal(wb_spot_object(spot), dir))
        return r;
    /* The caller came to `dir` by another way than the one that leads to the spot. */
    for (; r == 0 && at; at = wb_spot_parent(at))
        r = wb_past_may_now(session, req, at, X_OK);
    return r == -EACCES ? -ENOENT : r;
}

int wb_past_may_execute(struct wb_session *session, fuse_req_t req, struct wb_past_node *node)
{
    g_autofree char *names = NULL;
    struct wb_attrs attrs;
    ssize_t length;
    int r;

    if (fuse_req_ctx(req)->uid == 0)
        return 0;
    r = wb_past_attrs(session, node, &attrs);
    if (r != 0)
        return r < 0 ? r : -EIO;
    /* Without the group's x, S_ISGID means nothing to execve(2). */
    if (attrs.mode & S_ISUID || (attrs.mode & S_ISGID && attrs.mode & S_IXGRP))
        return -EPERM;
    names = g_try_malloc(XATTR_LIST_MAX);
    length = names ? wb_past_xattr_names(session, node, names) : -ENOMEM;
    for (ssize_t i = 0; i < length; i += (ssize_t)strlen(names + i) + 1)
        if (strcmp(names + i, "security.capability") == 0)
            return -EPERM;
    return length < 0 ? (int)length : 0;
}

int wb_past_may_have_device(fuse_req_t req, const struct wb_past_node *node)
{
    bool is_device = S_ISCHR(node->node.type) || S_ISBLK(node->node.type);

    return is_device && fuse_req_ctx(req)->uid != 0 ? -EACCES : 0;
}
