/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "daemon/past_access.h"

#include "base/cleanup.h"
#include "daemon/access.h"
#include "daemon/control.h"
#include "daemon/creds.h"
#include "wayback/when.h"
#include <errno.h>
#include <fcntl.h>
#include <glib.h>
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
 * in the directory it was found in, that one was passed already.
 */
static int may_reach_now(struct wb_session *session, fuse_req_t req, struct wb_spot *spot)
{
    struct wb_request request = {.session = session, .req = req};
    struct wb_live *dir = NULL;
    struct wb_location location;
    g_autofree char *path = NULL;
    g_autofree char *parent = NULL;
    g_autofree char *name = NULL;
    const char *slash;
    int r = wb_spot_locate(session->history, spot, &location);

    path = location.path;
    if (r < 0 || location.state != WB_ALIVE || !wb_spot_parent(spot))
        return r;
    slash = strrchr(path, '/');
    parent = g_strndup(path, slash ? (gsize)(slash - path) : 0);
    if (is_at(session, wb_spot_parent(spot), parent))
        return 0;
    r = wb_control_walk(&request, session->nodes.root, path, true, &dir, &name);
    if (r == 0) {
        struct wb_access access;

        r = wb_access_get(session, dir, &access);
        if (r == 0)
            r = wb_caller_may(session, req, access.fd, X_OK);
        wb_access_put(session, &access);
        wb_live_unref(session, dir);
    }
    return r == -ENOENT || r == -ENOTDIR ? 0 : r;
}

/* Whether it is in the graveyard and nowhere else: no directory leads to it now. */
static bool is_dead(struct wb_session *session, const struct wb_spot *spot, int fd)
{
    bool is_dir = wb_spot_type(spot) == S_IFDIR;
    struct stat st;

    return fstat(fd, &st) == 0 && (is_dir || st.st_nlink == 1) &&
           wb_grave_has(session->store, wb_spot_object(spot), is_dir) == 1;
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
    if (r == 0 && !is_dead(session, spot, fd))
        r = may_reach_now(session, req, spot);
    return r;
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
