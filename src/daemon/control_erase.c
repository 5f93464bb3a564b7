/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * ERASE: a name, and with PRESENT what it stands for now, vanishes with all its history. The
 * present goes first, as by rm, and is recorded like that; then the records go. ERASE_BEFORE: only what it was before
 * a moment.
 */
#include "daemon/control.h"

#include "base/cleanup.h"
#include "base/dir.h"
#include "daemon/creds.h"
#include "daemon/doors.h"
#include "daemon/ops.h"
#include "daemon/past.h"
#include "daemon/past_access.h"
#include "daemon/past_node.h"
#include "daemon/report.h"
#include "daemon/stage.h"
#include "keep/erase.h"
#include <errno.h>
#include <fcntl.h>
#include <glib.h>
#include <string.h>

/* No path of the kernel's is deeper. */
#define WB_ERASE_DEPTH_MAX 4096

struct erase {
    const struct wb_request *request;
    struct wb_spot *spot_dir;  /* the directory as history knows it */
    char *name;
    struct wb_live *dir;       /* and as it is now; NULL: it is gone */
    bool present;              /* dir/name is there now */
    bool is_dir;
    int64_t before;            /* that moment; 0: all */
    unsigned depth;
};

/* What is done with every entry below a directory; `fd` is the directory's. */
typedef int visitor(struct erase *erase, struct wb_live *dir, const char *name);

static int names_of(struct erase *erase, struct wb_live *dir, GPtrArray *names)
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
static int each_below(struct erase *erase, struct wb_live *dir, visitor *visit)
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
static int look(struct erase *erase, struct wb_live *dir, const char *name, struct stat *st,
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

static int may_write(struct erase *erase, struct wb_live *dir, int mask)
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
static int check_one(struct erase *erase, struct wb_live *node, const struct stat *st)
{
    if (st->st_uid != fuse_req_ctx(erase->request->req)->uid)
        return -EPERM;
    return S_ISDIR(st->st_mode) ? may_write(erase, node, R_OK | W_OK | X_OK) : 0;
}

/* Looked at whole before the first thing goes. */
static int check_tree(struct erase *erase, struct wb_live *dir, const char *name)
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

static int check_gone(struct erase *erase)
{
    const struct wb_request *request = erase->request;
    struct wb_spot *last __attribute__((cleanup(wb_spot_unrefp))) = NULL;
    int r = wb_control_last_state(request, erase->spot_dir, erase->name, &last);

    if (r == 0)
        r = wb_control_owns(request, last);
    return r == WB_ABSENT && !last ? -ENOENT : r < 0 ? r : r == 0 ? -EPERM : 0;
}

static int check(struct erase *erase)
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

static int remove_tree(struct erase *erase, struct wb_live *dir, const char *name)
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

/* ---- the past -------------------------------------------------------------------------------- */

/* What nodes know of logs and graves is to be found out again. With the tree to ourselves. */
static void forget_hints(struct wb_session *session)
{
    struct wb_nodes *nodes = &session->nodes;

    pthread_mutex_lock(&nodes->lock);
    for (size_t i = 0; i < nodes->bucket_count; i++) {
        for (struct wb_live *live = nodes->buckets[i]; live; live = live->hash_next) {
            live->has_undo = false;
            if (wb_live_is_dir(live))
                live->dir.has_catalog = false;
            live->buried = WB_BURIED_UNKNOWN;
        }
    }
    pthread_mutex_unlock(&nodes->lock);
}

static int erase_past(struct erase *erase, struct wb_erase_count *count)
{
    struct wb_session *session = erase->request->session;
    struct wb_problem why = {""};
    unsigned flags = 0;
    int r;

    if (erase->request->in->flags & WB_CONTROL_ERASE_RECURSIVE)
        flags |= WB_ERASE_RECURSIVE;
    if (erase->request->in->flags & WB_CONTROL_ERASE_PRESENT)
        flags |= WB_ERASE_PRESENT;
    wb_tree_own(session);
    wb_stages_end_all(session); /* what they keep may be what is erased */
    r = wb_erase(session->history, erase->spot_dir, erase->name, flags, erase->before,
                 fuse_req_ctx(erase->request->req)->uid, count, &why);
    forget_hints(session);
    wb_tree_release(session);
    session->dirty = true;
    wb_control_pages_drop(session->past);
    wb_doors_drop(session);
    wb_past_renew(session);
    if (r < 0 && r != -ENOENT && r != -EISDIR && r != -EPERM)
        wb_report("%s", why.text);
    return r;
}

/* ---- the request ----------------------------------------------------------------------------- */

/* What was in a directory that is no more: nobody else's present can be meant by its names. */
static bool is_buried(struct erase *erase)
{
    struct wb_location location;
    int r = wb_spot_locate(erase->request->session->history, erase->spot_dir, &location);

    if (r == 0)
        g_free(location.path);
    return r == 0 && location.state != WB_ALIVE;
}

static int find(struct erase *erase, struct wb_live *start)
{
    const struct wb_request *request = erase->request;
    g_autofree char *name = NULL;
    struct wb_live *node;
    struct stat st;
    bool former;
    int r;

    r = wb_control_walk(request, start, request->in->path, true, &erase->dir, &name);
    former = r == -EROFS && request->in->flags & WB_CONTROL_ERASE_FORMER;
    if (r < 0 && r != -ENOENT && r != -ENOTDIR && !former)
        return r;
    r = wb_control_find(request, request->in->path, &erase->spot_dir, &erase->name);
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

static int carry_out(const struct wb_request *request, int64_t before, struct wb_control *out)
{
    struct wb_control_erased *reply = (struct wb_control_erased *)(void *)out->data;
    struct erase erase = {.request = request, .before = before};
    struct wb_live *start = wb_live_of(request->start);
    struct wb_erase_count count = {0};
    bool with_present = request->in->flags & WB_CONTROL_ERASE_PRESENT;
    int r;

    if (!start)
        return -EROFS;
    r = find(&erase, start);
    if (r == 0)
        r = check(&erase);
    if (r == 0 && erase.is_dir && !(request->in->flags & WB_CONTROL_ERASE_RECURSIVE))
        r = -EISDIR;
    if (r == 0 && erase.present && with_present)
        r = remove_tree(&erase, erase.dir, erase.name);
    if (r == 0) {
        r = erase_past(&erase, &count);
        /* What never changed has no history, and now it has none. */
        if (r == -ENOENT && erase.present && !with_present)
            r = 0;
        else if (r == -ENOENT && wb_past_is_moment(request->session, erase.name))
            r = -EROFS;
    }
    reply->objects = count.objects;
    reply->bytes = count.bytes;
    wb_spot_unref(erase.spot_dir);
    wb_live_unref(request->session, erase.dir);
    g_free(erase.name);
    return r;
}

int wb_control_erase(const struct wb_request *request, struct wb_control *out)
{
    return carry_out(request, 0, out);
}

int wb_control_erase_before(const struct wb_request *request, struct wb_control *out)
{
    const struct wb_control *in = request->in;

    if (in->until <= 0 || in->until >= wb_store_now(request->session->store) || in->flags & WB_CONTROL_ERASE_PRESENT)
        return -EINVAL;
    return carry_out(request, in->until, out);
}
