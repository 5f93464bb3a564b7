/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "daemon/control/control.h"

#include "base/cleanup.h"
#include "daemon/caller/caller.h"
#include "daemon/caller/creds.h"
#include "daemon/core/kcache_invalidate.h"
#include "daemon/live/ops.h"
#include "daemon/past/past.h"
#include "daemon/past/past_access.h"
#include "daemon/past/past_node.h"
#include "daemon/past/past_perm.h"
#include "daemon/past/snapdir.h"
#include "wayback/when.h"
#include <errno.h>
#include <fcntl.h>
#include <glib.h>
#include <string.h>
#include <unistd.h>

/* How deep it is looked which directory keeps the caller from knowing that something is not there. */
#define WB_HIDE_STEPS_MAX 64

static bool is_root(const struct wb_request *request)
{
    return fuse_req_ctx(request->req)->uid == 0;
}

/* ---- through history ------------------------------------------------------------------------- */

/* Whether the caller may search `dir` and what is above it, up to where the request begins. Above
 * that, the past alone has to be asked: the present was passed when `start` was opened. */
static int may_search(const struct wb_request *request, struct wb_revision *dir)
{
    bool above = false;
    int r = 0;

    for (; r == 0 && dir; dir = wb_revision_parent(dir)) {
        if (!above)
            r = wb_past_may_now(request->session, request->req, dir, X_OK);
        if (r == 0 && wb_revision_when(dir) != WB_WHEN_PRESENT)
            r = wb_past_could_then(request->session, request->req, dir, X_OK);
        above = above || wb_object_equal(wb_revision_object(dir), request->start->object);
    }
    return r;
}

/* A path failed with `error`: is the caller to know why? */
static int hide(const struct wb_request *request, struct wb_revision *start, const char *path, int error)
{
    unsigned steps = 0;

    for (const char *end = path; (end = strchr(end, '/')); end++) {
        g_autofree char *prefix = g_strdup_printf("%.*s/.x", (int)(end - path), path);
        struct wb_revision *dir __attribute__((cleanup(wb_revision_unrefp))) = NULL;
        g_autofree char *name = NULL;
        int r;

        if (++steps > WB_HIDE_STEPS_MAX)
            return -EACCES;
        if (wb_history_find(request->session->history, start, prefix, &dir, &name) != 0)
            return error;
        r = may_search(request, dir);
        if (r < 0)
            return r;
    }
    return error;
}

/*
 * DIR/.snapshot/NAME is DIR/@NAME, which history knows: the path in these words, or NULL where they are the same. With
 * '@' as the mark, .snapshot/@GMT-... has it already.
 */
static char *with_moments(const struct wb_session *session, const char *path)
{
    g_auto(GStrv) parts = g_strsplit(path, "/", -1);
    GString *result = g_string_new(NULL);
    char mark = session->options->at_sign;
    bool any = false;

    for (char **part = parts; *part; part++) {
        bool snapdir = wb_snapdir_is(session, *part) && part[1] && *part[1];

        any = any || snapdir;
        if (snapdir && (mark != WB_AT_SIGN || *part[1] != mark))
            g_string_append_c(result, mark);
        if (!snapdir)
            g_string_append_printf(result, "%s%s", *part, part[1] ? "/" : "");
    }
    return g_string_free(result, !any);
}

int wb_control_find(const struct wb_request *request, const char *path, struct wb_revision **ret_dir, char **ret_name)
{
    struct wb_revision *start __attribute__((cleanup(wb_revision_unrefp))) = NULL;
    struct wb_revision *dir __attribute__((cleanup(wb_revision_unrefp))) = NULL;
    g_autofree char *name = NULL;
    g_autofree char *moments = NULL;
    int r;

    r = wb_past_revision_of(request->session, request->start, &start);
    if (r == 0)
        r = wb_history_find(request->session->history, start, path, &dir, &name);
    else
        return r;
    if (r == -ENOENT && (moments = with_moments(request->session, path)))
        r = wb_history_find(request->session->history, start, path = moments, &dir, &name);
    if (r < 0)
        return is_root(request) ? r : hide(request, start, path, r);
    r = is_root(request) ? 0 : may_search(request, dir);
    if (r < 0)
        return r;
    *ret_dir = g_steal_pointer(&dir);
    *ret_name = g_steal_pointer(&name);
    return 0;
}

/* What was found by a name in `dir`, if the caller may get there; `r`: the result of finding it. */
static int enter(const struct wb_request *request, struct wb_revision *dir, int r, struct wb_revision **ret)
{
    if (r != 0)
        return r;
    r = wb_past_may_enter(request->session, request->req, *ret, wb_revision_object(dir));
    if (r < 0)
        *ret = wb_revision_unref(*ret);
    return r;
}

int wb_control_entry(const struct wb_request *request, struct wb_revision *dir, const char *name,
                     struct wb_revision **ret)
{
    struct wb_history *history = request->session->history;
    int r;

    if (!*name) {
        *ret = wb_revision_ref(dir);
        return 0;
    }
    r = wb_revision_child(history, dir, name, ret);
    if (r != WB_ABSENT)
        return r;
    r = wb_history_at(history, dir, name, ret);
    return enter(request, dir, r, ret);
}

int wb_control_last_state(const struct wb_request *request, struct wb_revision *dir, const char *name,
                          struct wb_revision **ret)
{
    struct wb_versions *versions = NULL;
    struct wb_version version;
    int r;

    r = wb_versions_open(request->session->history, dir, name, &versions);
    if (r < 0)
        return r;
    do
        r = wb_versions_next(versions, &version);
    while (r == WB_DAMAGED);
    if (r == 0)
        r = wb_versions_before(versions, ret);
    wb_versions_free(versions);
    return enter(request, dir, r == WB_END ? WB_ABSENT : r, ret);
}

int wb_control_entry_or_last(const struct wb_request *request, struct wb_revision *dir, const char *name,
                             struct wb_revision **ret)
{
    int r = wb_control_entry(request, dir, name, ret);

    return r == WB_ABSENT ? wb_control_last_state(request, dir, name, ret) : r;
}

int wb_control_may_list(const struct wb_request *request, struct wb_revision *dir)
{
    int r;

    if (wb_revision_type(dir) != S_IFDIR)
        return -ENOTDIR;
    r = wb_past_may_now(request->session, request->req, dir, R_OK | X_OK);
    if (r == 0 && wb_revision_when(dir) != WB_WHEN_PRESENT)
        r = wb_past_could_then(request->session, request->req, dir, R_OK | X_OK);
    return r;
}

bool wb_control_is_at_home(const struct wb_request *request)
{
    struct wb_caller *caller = request->caller;

    if (!caller->asked) {
        caller->at_home = wb_caller_is_at_home(fuse_req_ctx(request->req)->pid) == 1;
        caller->asked = true;
    }
    return caller->at_home;
}

bool wb_control_has_keepers_uid(const struct wb_request *request)
{
    uid_t uid = fuse_req_ctx(request->req)->uid;

    return uid == 0 || uid == geteuid();
}

bool wb_control_is_keeper(const struct wb_request *request)
{
    return wb_control_has_keepers_uid(request) && wb_control_is_at_home(request);
}

int wb_control_need_keeper(const struct wb_request *request)
{
    if (!wb_control_has_keepers_uid(request))
        return -EPERM;
    return wb_control_is_at_home(request) ? 0 : -EREMOTE;
}

int wb_control_actor(const struct wb_request *request, uint32_t index, int64_t when, struct wb_actor *ret)
{
    int r = wb_store_actor_info(request->session->store, index, when, ret);

    if (r == 0 && ret->uid != fuse_req_ctx(request->req)->uid && !wb_control_is_keeper(request))
        wb_actor_hide_arguments(ret);
    return r;
}

bool wb_control_is_over(void *request)
{
    const struct wb_request *asked = request;

    return fuse_req_interrupted(asked->req) || fuse_session_exited(asked->session->fuse);
}

/* ---- what the kernel believes ---------------------------------------------------------------- */

void wb_control_forget_attrs(struct wb_session *session, struct wb_inode *inode)
{
    wb_kcache_invalidate_attrs(session, inode);
}

void wb_control_forget_name(struct wb_session *session, struct wb_inode *dir, const char *name)
{
    fuse_lowlevel_notify_inval_entry(session->fuse, wb_node_ino(session, &dir->node), name,
                                     strlen(name));
    wb_kcache_invalidate_listing(session, dir);
}
