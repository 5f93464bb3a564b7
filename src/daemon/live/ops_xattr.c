/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Extended attributes, POSIX ACLs among them. */
#include "daemon/caller/creds.h"
#include "daemon/core/doubt.h"
#include "daemon/keeper/again.h"
#include "daemon/live/change.h"
#include "daemon/live/ops.h"

#include "base/io.h"
#include "base/xattr.h"
#include <errno.h>
#include <glib.h>
#include <linux/limits.h>
#include <string.h>

#define ACL_ACCESS "system.posix_acl_access"
#define ACL_DEFAULT "system.posix_acl_default"

/*
 * A file system without ACLs answers EOPNOTSUPP for one, and the kernel passes that error on to any caller whose rights
 * depend on it: nobody but the owner could open the file. No ACL is what is meant.
 */
static int read_error(const char *name, int error)
{
    bool acl = strcmp(name, ACL_ACCESS) == 0 || strcmp(name, ACL_DEFAULT) == 0;

    return acl && error == -EOPNOTSUPP ? -ENODATA : error;
}

void wb_op_getxattr(struct wb_session *session, fuse_req_t req, struct wb_live *live,
                    const char *name, size_t size)
{
    g_autofree char *value = NULL;
    struct wb_access access;
    ssize_t length;
    int r;

    if (size > 0) {
        value = g_try_malloc(size);
        if (!value) {
            fuse_reply_err(req, ENOMEM);
            return;
        }
    }
    r = wb_access_get_open(session, live, &access);
    if (r < 0) {
        fuse_reply_err(req, -r);
        return;
    }
    length = wb_getxattr_fd(access.fd, name, value, size);
    wb_access_put(session, &access);
    if (length < 0)
        fuse_reply_err(req, -read_error(name, (int)length));
    else if (size == 0)
        fuse_reply_xattr(req, (size_t)length);
    else
        fuse_reply_buf(req, value, (size_t)length);
}

void wb_op_listxattr(struct wb_session *session, fuse_req_t req, struct wb_live *live, size_t size)
{
    g_autofree char *list = g_try_malloc(XATTR_LIST_MAX);
    struct wb_access access;
    ssize_t length;
    int r = list ? wb_access_get(session, live, &access) : -ENOMEM;

    if (r < 0) {
        fuse_reply_err(req, -r);
        return;
    }
    length = wb_listxattr_fd(access.fd, list, XATTR_LIST_MAX);
    r = (int)MIN(length, 0);
    wb_access_put(session, &access);
    if (r < 0) {
        fuse_reply_err(req, -r);
        return;
    }
    length = (ssize_t)wb_xattr_list_filter(req, list, (size_t)length);
    if (size == 0)
        fuse_reply_xattr(req, (size_t)length);
    else if (size < (size_t)length)
        fuse_reply_err(req, ERANGE);
    else
        fuse_reply_buf(req, list, (size_t)length);
}

/*
 * Setting an ACL as root does not clear sgid, as it would for a caller outside of the group. The
 * kernel decides that for us only where it may send the longer SETXATTR, which libfuse does not
 * pass on.
 */
static void clear_sgid_with_acl(struct wb_subject *subject, fuse_req_t req)
{
    if (!subject->session->is_root || fuse_req_ctx(req)->uid == 0 ||
        !(subject->st.st_mode & S_ISGID) || wb_caller_in_group(req, subject->st.st_gid))
        return;
    if (wb_subject_attrs(subject, WB_OP_CHMOD) == 0)
        wb_subject_end(subject, wb_chmod_fd(subject->fd, subject->st.st_mode & 07777 & ~S_ISGID));
}

/* `value` NULL removes. */
static void change(struct wb_session *session, fuse_req_t req, struct wb_live *live,
                   const char *name, const char *value, size_t size, int flags)
{
    struct wb_subject subject;
    struct wb_access access;
    int r;

    r = wb_access_get(session, live, &access);
    if (r < 0) {
        fuse_reply_err(req, -r);
        return;
    }
    r = wb_subject_lock(&subject, session, req, live, access.fd);
    if (r == 0) {
        if (value && strcmp(name, ACL_ACCESS) == 0)
            clear_sgid_with_acl(&subject, req);
        r = value && wb_again_is_kept_for_root(session, req) ? -ENOSPC : 0;
        if (r == 0)
            r = wb_subject_xattr(&subject, name, value ? WB_OP_SETXATTR : WB_OP_REMOVEXATTR);
        if (r == -ENODATA && !value) {
            /* Nothing to record; an ACL that is not there is removed with success all the same. */
            r = wb_removexattr_fd(access.fd, name);
        } else if (r == 0) {
            r = value ? wb_setxattr_fd(access.fd, name, value, size, flags) : wb_removexattr_fd(access.fd, name);
            r = wb_subject_end(&subject, r);
        }
        live->no_privileges = false;
        wb_subject_unlock(&subject);
    }
    wb_access_put(session, &access);
    /* Its mode may be another by then. */
    if (r < 0)
        wb_doubt_attrs(session, live);
    wb_again_reply(req, -r);
}

void wb_op_setxattr(struct wb_session *session, fuse_req_t req, struct wb_live *live,
                    const char *name, const char *value, size_t size, int flags)
{
    change(session, req, live, name, value, size, flags);
}

void wb_op_removexattr(struct wb_session *session, fuse_req_t req, struct wb_live *live,
                       const char *name)
{
    change(session, req, live, name, NULL, 0, 0);
}
