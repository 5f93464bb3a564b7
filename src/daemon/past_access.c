/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "daemon/past_access.h"

#include "base/cleanup.h"
#include "daemon/creds.h"
#include "wayback/when.h"
#include <errno.h>
#include <fcntl.h>

int wb_past_may_now(struct wb_session *session, fuse_req_t req, struct wb_spot *spot, int mask)
{
    _cleanup_close_ int fd = -1;

    if (fuse_req_ctx(req)->uid == 0)
        return 0;
    fd = wb_spot_open_present(session->history, spot, O_PATH | O_CLOEXEC);
    /* What is gone for good cannot tell whom it would let in. */
    if (fd == -EIO || fd == -ENOENT)
        return -EACCES;
    return fd < 0 ? fd : wb_caller_may(session, req, fd, mask);
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
