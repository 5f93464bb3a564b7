/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "daemon/past/walk.h"

#include "daemon/caller/creds.h"
#include "daemon/core/access.h"
#include "daemon/core/entry.h"
#include "daemon/past/past.h"
#include "daemon/past/snapdir.h"
#include <errno.h>
#include <glib.h>
#include <unistd.h>

static int step(struct wb_session *session, fuse_req_t req, struct wb_inode *dir, const char *name,
                struct wb_inode **ret)
{
    struct fuse_entry_param entry;
    struct wb_access access;
    struct wb_inode *child;
    int r;

    if (wb_name_is_hidden(session, dir, name))
        return -ENOENT;
    r = wb_access_get(session, dir, &access);
    if (r < 0)
        return r;
    r = req ? wb_caller_may(session, req, access.fd, X_OK) : 0;
    if (r == 0)
        r = wb_entry_fill(session, dir, access.fd, name, &entry, &child);
    wb_access_put(session, &access);
    if (r == -ENOENT && (wb_past_is_moment(session, name) || wb_snapdir_is(session, name)))
        return -EROFS;
    if (r < 0)
        return r;
    wb_inode_forget(session, child, 1); /* no reply gives it to the kernel */
    if (!wb_inode_is_dir(child)) {
        wb_inode_unref(session, child);
        return -ENOTDIR;
    }
    *ret = child;
    return 0;
}

int wb_walk(struct wb_session *session, fuse_req_t req, struct wb_inode *start, const char *path,
            struct wb_inode **ret_dir, char **ret_name)
{
    g_auto(GStrv) parts = NULL;
    struct wb_inode *at;
    guint count;
    int r;

    r = wb_history_split(path, &parts);
    if (r < 0)
        return r;
    count = g_strv_length(parts);
    at = wb_inode_ref(session, start);
    for (guint i = 0; r == 0 && i + 1 < count; i++) {
        struct wb_inode *next = NULL;

        r = step(session, req, at, parts[i], &next);
        if (r == 0) {
            wb_inode_unref(session, at);
            at = next;
        }
    }
    if (r < 0) {
        wb_inode_unref(session, at);
        return r;
    }
    *ret_name = g_strdup(count > 0 ? parts[count - 1] : "");
    *ret_dir = at;
    return 0;
}
