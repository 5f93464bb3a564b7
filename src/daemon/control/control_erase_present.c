/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* What an erasure finds there now: whether the caller may erase it, with all below it, and that it is removed. */
#include "daemon/control/control_erase.h"

#include "base/cleanup.h"
#include "base/dir.h"
#include "daemon/caller/creds.h"
#include "daemon/live/ops.h"
#include "daemon/past/past_access.h"
#include "daemon/past/past_node.h"
#include "daemon/past/walk.h"
#include <errno.h>
#include <fcntl.h>
#include <glib.h>

/* No path of the kernel's is deeper. */
#define WB_ERASE_DEPTH_MAX 4096

/* What is done with every entry below a directory; `fd` is the directory's. */
typedef int visitor(struct wb_erasing *erase, struct wb_live *dir, const char *name);

static int names_of(struct wb_erasing *erase, struct wb_live *dir, GPtrArray *names)
{
    struct wb_session *session = erase->request->session;
    _cleanup_closedir_ DIR *stream = NULL;
    struct dirent *entry;
    int fd = wb_access_open(session, dir, O_RDONLY), r = 0;

    if (fd < 0)
        return fd;
    stream = wb_opendir_of(fd);
    if (!stream)
        return -errno;
    while (wb_next_entry(stream, &entry, &r))
        g_ptr_array_add(names, g_strdup(entry->d_name));
    return r;
}

/* All names first: no descriptor is held while it goes further down. */
static int each_below(struct wb_erasing *erase, struct wb_live *dir, visitor *visit)
{
    g_autoptr(GPtrArray) names = g_ptr_array_new_with_free_func(g_free);
    int r = erase->depth >= WB_ERASE_DEPTH_MAX ? -ELOOP : names_of(erase, dir, names);

    erase->depth++;
    for (guint i = 0; r == 0 && i < names->len; i++)
        r = visit(erase, dir, names->pdata[i]);
    erase->depth--;
    return r;
}

/* dir/name, with its node (referenced) where it is a directory. */
static int look(struct wb_erasing *erase, struct wb_live *dir, const char *name, struct stat *st,
                struct wb_live **ret_dir)
{
    struct wb_session *session = erase->request->session;
    struct fuse_entry_param entry;
    struct wb_access access;
    int r;

    *ret_dir = NULL;
    r = wb_access_get(session, dir, &access);
    if (r < 0)
        return r;
    r = wb_entry_fill(session, dir, access.fd, name, &entry, ret_dir);
    wb_access_put(session, &access);
    if (r < 0)
        return r;
    *st = entry.attr;
    wb_live_forget(session, *ret_dir, 1); /* the kernel is not told of it */
    return 0;
}

/* ---- may the caller? ------------------------------------------------------------------------- */

static int may_write(struct wb_erasing *erase, struct wb_live *dir, int mask)
{
    const struct wb_request *request = erase->request;
    struct wb_access access;
    int r = wb_access_get(request->session, dir, &access);

    if (r < 0)
        return r;
    r = wb_caller_may(request->session, request->req, access.fd, mask);
    wb_access_put(request->session, &access);
    return r;
}

/* One thing: only what is the caller's own, and a directory that he may empty. */
static int check_one(struct wb_erasing *erase, struct wb_live *node, const struct stat *st)
{
    if (st->st_uid != fuse_req_ctx(erase->request->req)->uid)
        return -EPERM;
    return S_ISDIR(st->st_mode) ? may_write(erase, node, R_OK | W_OK | X_OK) : 0;
}

/* Looked at whole before the first thing goes. */
static int check_tree(struct wb_erasing *erase, struct wb_live *dir, const char *name)
{
    struct wb_live *node;
    struct stat st;
    int r = look(erase, dir, name, &st, &node);

    if (r < 0)
        return r;
    r = check_one(erase, node, &st);
    if (r == 0 && S_ISDIR(st.st_mode))
        r = each_below(erase, node, check_tree);
    wb_live_unref(erase->request->session, node);
    return r;
}

static int check_gone(struct wb_erasing *erase)
{
    const struct wb_request *request = erase->request;
    struct wb_spot *last __attribute__((cleanup(wb_spot_unrefp))) = NULL;
    int r = wb_control_last_state(request, erase->spot_dir, erase->name, &last);

    if (r == 0)
        r = wb_past_owns(request->session, request->req, last);
    return r == WB_ABSENT && !last ? -ENOENT : r < 0 ? r : r == 0 ? -EPERM : 0;
}

static int check(struct wb_erasing *erase)
{
    const struct wb_request *request = erase->request;
    int r;

    if (fuse_req_ctx(request->req)->uid == 0)
        return 0;
    r = wb_past_may_now(request->session, request->req, erase->spot_dir, W_OK | X_OK);
    if (r < 0)
        return r;
    r = erase->present ? check_tree(erase, erase->dir, erase->name) : check_gone(erase);
    /* What had the name before may have been somebody else's. */
    return r < 0 ? r
                 : wb_erase_permitted(request->session->history, erase->spot_dir, erase->name,
                                      fuse_req_ctx(request->req)->uid);
}

/* ---- the present ----------------------------------------------------------------------------- */

static int remove_tree(struct wb_erasing *erase, struct wb_live *dir, const char *name)
{
    const struct wb_request *request = erase->request;
    struct wb_live *node;
    struct stat st;
    int r = look(erase, dir, name, &st, &node);

    if (r < 0)
        return r;
    /* Since the whole was looked at, somebody may have moved in what is not the caller's. */
    if (fuse_req_ctx(request->req)->uid != 0)
        r = check_one(erase, node, &st);
    if (r == 0 && S_ISDIR(st.st_mode))
        r = each_below(erase, node, remove_tree);
    if (r == 0)
        r = wb_remove(request->session, request->req, dir, name, S_ISDIR(st.st_mode), true);
    if (r == 0) {
        wb_control_forget_name(request->session, dir, name);
        wb_control_forget_attrs(request->session, node);
    }
    wb_live_unref(request->session, node);
    return r;
}

/* ---- the name -------------------------------------------------------------------------------- */

/* What was in a directory that is no more: nobody else's present can be meant by its names. */
static bool is_buried(struct wb_erasing *erase)
{
    struct wb_location location;
    int r = wb_spot_locate(erase->request->session->history, erase->spot_dir, &location);

    if (r == 0)
        g_free(location.path);
    return r == 0 && location.state != WB_ALIVE;
}

static int find(struct wb_erasing *erase, struct wb_live *start)
{
    const struct wb_request *request = erase->request;
    g_autofree char *name = NULL;
    struct wb_live *node;
    struct stat st;
    bool former;
    int r;

    r = wb_walk(request->session, request->req, start, erase->path, &erase->dir, &name);
    former = r == -EROFS && erase->flags & WB_CONTROL_ERASE_FORMER;
    if (r < 0 && r != -ENOENT && r != -ENOTDIR && !former)
        return r;
    r = wb_control_find(request, erase->path, &erase->spot_dir, &erase->name);
    if (r < 0)
        return r;
    if (!*erase->name)
        return -EINVAL;
    if (former && !is_buried(erase))
        return -EROFS;
    if (!erase->dir)
        return 0;
    if (wb_name_is_hidden(request->session, erase->dir, erase->name))
        return -EPERM;
    r = look(erase, erase->dir, erase->name, &st, &node);
    if (r == -ENOENT)
        return 0;
    if (r < 0)
        return r;
    erase->present = true;
    erase->is_dir = S_ISDIR(st.st_mode);
    wb_live_unref(request->session, node);
    return 0;
}

static int measure(struct wb_erasing *erase)
{
    return wb_erase_measure(erase->request->session->history, erase->spot_dir, erase->name,
                            fuse_req_ctx(erase->request->req)->uid, &erase->freed);
}

void wb_erase_look(struct wb_erasing *erase)
{
    struct wb_live *start = wb_live_of(erase->request->start);
    int r = start ? find(erase, start) : -EROFS;

    if (r == 0)
        r = check(erase);
    erase->result = r == 0 ? measure(erase) : r;
}

void wb_erase_present(struct wb_erasing *erase)
{
    struct wb_live *start = wb_live_of(erase->request->start);
    int r = start ? find(erase, start) : -EROFS;

    if (r == 0)
        r = check(erase);
    if (r == 0 && erase->is_dir && !(erase->flags & WB_CONTROL_ERASE_RECURSIVE))
        r = -EISDIR;
    /* Removing them makes the catalogs grow. That this fails is no reason to keep them. */
    if (r == 0 && erase->is_dir && erase->flags & WB_CONTROL_ERASE_PRESENT)
        (void)measure(erase);
    if (r == 0 && erase->present && erase->flags & WB_CONTROL_ERASE_PRESENT)
        r = remove_tree(erase, erase->dir, erase->name);
    erase->result = r;
}

void wb_erasing_release(struct wb_erasing *erase)
{
    wb_spot_unref(erase->spot_dir);
    wb_live_unref(erase->request->session, erase->dir);
    g_free(erase->name);
}
