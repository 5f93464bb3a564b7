/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* ERASE_VERSIONS: what a file was between two changes of it vanishes; what it is, and all else it was, stays. */
#include "daemon/control/control.h"

#include "daemon/caller/creds.h"
#include "daemon/live/ops.h"
#include "daemon/live/stage.h"
#include "daemon/past/doors.h"
#include "daemon/past/pages.h"
#include "daemon/past/past.h"
#include "daemon/past/past_access.h"
#include "daemon/past/past_node.h"
#include "daemon/past/walk.h"
#include "maintain/erase/erase_versions.h"
#include <errno.h>
#include <glib.h>
#include <sys/stat.h>

/* What has the name, if it is the caller's. */
static int look(const struct wb_request *request, int dir_fd, const char *name, struct wb_object *ret)
{
    uid_t uid = fuse_req_ctx(request->req)->uid;
    struct stat st;
    int r = wb_object_stat(request->session->store, dir_fd, name, ret, NULL, &st);

    if (r < 0)
        return r;
    if (!S_ISREG(st.st_mode))
        return S_ISDIR(st.st_mode) ? -EISDIR : -EINVAL;
    return uid != 0 && st.st_uid != uid ? -EPERM : 0;
}

/* Catalogs are read beside all changes: nobody should have to wait for that. */
static int look_around(struct wb_session *session, struct wb_erase_versions *what)
{
    int64_t settled;

    wb_tree_own(session);
    wb_stages_end_all(session);
    settled = wb_store_tick(session->store);
    wb_tree_release(session);
    return what->until < settled ? wb_erase_versions_look(session->store, what) : -EINVAL;
}

/* With the tree owned. */
static int erase(const struct wb_request *request, int dir_fd, const char *name, const struct wb_erase_versions *what,
                 struct wb_control_erased_versions *reply)
{
    struct wb_object object;
    int r = look(request, dir_fd, name, &object);

    if (r == 0 && !wb_object_equal(object, what->object))
        r = -EAGAIN;
    if (r < 0)
        return r;
    r = wb_erase_versions(request->session->store, what, reply);
    if (r > 0)
        reply->refused = (uint32_t)r;
    return MIN(r, 0);
}

int wb_control_erase_versions(const struct wb_request *request, struct wb_control *out)
{
    struct wb_control_erased_versions *reply = (struct wb_control_erased_versions *)(void *)out->data;
    struct wb_live *start = wb_live_of(request->start), *dir = NULL;
    struct wb_session *session = request->session;
    g_autofree char *name = NULL;
    struct wb_erase_versions what = {.from = request->in->since,
                                     .until = request->in->until,
                                     .by = fuse_req_ctx(request->req)->uid,
                                     .dry_run = request->in->flags & WB_CONTROL_ERASE_DRY};
    struct wb_access access;
    int r;

    if (!start)
        return -EROFS;
    if (request->in->since <= 0 || request->in->since >= request->in->until)
        return -EINVAL;
    r = wb_walk(request->session, request->req, start, request->in->path, &dir, &name);
    if (r < 0)
        return r;
    r = !*name ? -EISDIR : wb_name_is_hidden(session, dir, name) ? -EPERM : wb_access_get(session, dir, &access);
    if (r < 0) {
        wb_live_unref(session, dir);
        return r;
    }
    r = wb_caller_may(session, request->req, access.fd, W_OK | X_OK);
    if (r == 0)
        r = look(request, access.fd, name, &what.object);
    if (r == 0)
        r = look_around(session, &what);
    if (r == 0) {
        /* Not with the tree owned: the kernel answers when those who read have their answers. */
        wb_past_alter_begin(session, what.object);
        wb_tree_own(session);
        wb_stages_end_all(session);
        r = erase(request, access.fd, name, &what, reply);
        wb_tree_release(session);
        session->dirty = true;
        wb_control_pages_drop(session->past);
        wb_doors_drop(session);
        wb_past_alter_end(session, what.object);
    }
    wb_access_put(session, &access);
    wb_live_unref(session, dir);
    return r;
}
