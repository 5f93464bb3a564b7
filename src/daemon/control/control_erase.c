/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * ERASE: a name, and with PRESENT what it stands for now, vanishes with all its history. The
 * present goes first, as by rm, and is recorded like that; then the records go. ERASE_NAMES: of several names the
 * present goes one after the other, each as it would by itself, and then the records of all in one pass.
 * ERASE_BEFORE: only what a name was before a moment, which differs for each name, so these go one by one.
 */
#include "base/cleanup.h"
#include "base/dir.h"
#include "daemon/caller/creds.h"
#include "daemon/control/control.h"
#include "daemon/live/ops.h"
#include "daemon/live/stage.h"
#include "daemon/past/past_perm.h"
#include "daemon/past/pages.h"
#include "daemon/past/past.h"
#include "daemon/past/past_access.h"
#include "daemon/past/past_node.h"
#include "daemon/past/walk.h"
#include "daemon/system/report.h"
#include "maintain/erase/erase.h"
#include "maintain/erase/erase_versions.h"
#include <errno.h>
#include <fcntl.h>
#include <glib.h>
#include <string.h>
#include <sys/stat.h>

struct wb_erasing {
    const struct wb_request *request;
    const char *path;          /* as asked, and WB_CONTROL_ERASE_* */
    unsigned flags;
    struct wb_revision *revision_dir; /* the directory as history knows it */
    char *name;
    struct wb_inode *dir;      /* and as it is now; NULL: it is gone */
    bool present;              /* dir/name is there now */
    bool is_dir;
    unsigned depth;
    int result;                /* positive outcomes as well */
    struct wb_erase_count count;
    struct wb_erase_freed freed; /* of a directory that is there, before its entries are removed */
};

/* What an erasure finds there now: whether the caller may erase it, with all below it, and that it is removed. */

/* No path of the kernel's is deeper. */
#define WB_ERASE_DEPTH_MAX 4096

/* What is done with every entry below a directory; `fd` is the directory's. */
typedef int visitor(struct wb_erasing *erase, struct wb_inode *dir, const char *name);

static int names_of(struct wb_erasing *erase, struct wb_inode *dir, GPtrArray *names)
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
static int each_below(struct wb_erasing *erase, struct wb_inode *dir, visitor *visit)
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
static int look(struct wb_erasing *erase, struct wb_inode *dir, const char *name, struct stat *st,
                struct wb_inode **ret_dir)
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
    wb_inode_forget(session, *ret_dir, 1); /* no reply gives it to the kernel */
    return 0;
}

/* ---- may the caller? ------------------------------------------------------------------------- */

static int may_write(struct wb_erasing *erase, struct wb_inode *dir, int mask)
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
static int check_one(struct wb_erasing *erase, struct wb_inode *node, const struct stat *st)
{
    if (st->st_uid != fuse_req_ctx(erase->request->req)->uid)
        return -EPERM;
    return S_ISDIR(st->st_mode) ? may_write(erase, node, R_OK | W_OK | X_OK) : 0;
}

/* Looked at whole before the first thing goes. */
static int check_tree(struct wb_erasing *erase, struct wb_inode *dir, const char *name)
{
    struct wb_inode *node;
    struct stat st;
    int r = look(erase, dir, name, &st, &node);

    if (r < 0)
        return r;
    r = check_one(erase, node, &st);
    if (r == 0 && S_ISDIR(st.st_mode))
        r = each_below(erase, node, check_tree);
    wb_inode_unref(erase->request->session, node);
    return r;
}

static int check_gone(struct wb_erasing *erase)
{
    const struct wb_request *request = erase->request;
    struct wb_revision *last __attribute__((cleanup(wb_revision_unrefp))) = NULL;
    int r = wb_control_last_state(request, erase->revision_dir, erase->name, &last);

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
    r = wb_past_may_now(request->session, request->req, erase->revision_dir, W_OK | X_OK);
    if (r < 0)
        return r;
    r = erase->present ? check_tree(erase, erase->dir, erase->name) : check_gone(erase);
    /* What had the name before may have been somebody else's. */
    return r < 0 ? r
                 : wb_erase_permitted(request->session->history, erase->revision_dir, erase->name,
                                      fuse_req_ctx(request->req)->uid);
}

/* ---- the present ----------------------------------------------------------------------------- */

static int remove_tree(struct wb_erasing *erase, struct wb_inode *dir, const char *name)
{
    const struct wb_request *request = erase->request;
    struct wb_inode *node;
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
    wb_inode_unref(request->session, node);
    return r;
}

/* ---- the name -------------------------------------------------------------------------------- */

/* What was in a directory that is no more: nobody else's present can be meant by its names. */
static bool is_buried(struct wb_erasing *erase)
{
    struct wb_location location;
    int r = wb_revision_resolve(erase->request->session->history, erase->revision_dir, &location);

    if (r == 0)
        g_free(location.path);
    return r == 0 && location.state != WB_LINKED;
}

static int find(struct wb_erasing *erase, struct wb_inode *start)
{
    const struct wb_request *request = erase->request;
    g_autofree char *name = NULL;
    struct wb_inode *node;
    struct stat st;
    bool former;
    int r;

    r = wb_walk(request->session, request->req, start, erase->path, &erase->dir, &name);
    former = r == -EROFS && erase->flags & WB_CONTROL_ERASE_FORMER;
    if (r < 0 && r != -ENOENT && r != -ENOTDIR && !former)
        return r;
    r = wb_control_find(request, erase->path, &erase->revision_dir, &erase->name);
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
    wb_inode_unref(request->session, node);
    return 0;
}

static int measure(struct wb_erasing *erase)
{
    return wb_erase_measure(erase->request->session->history, erase->revision_dir, erase->name,
                            fuse_req_ctx(erase->request->req)->uid, &erase->freed);
}

/* Finds it, and whether the caller may erase it; nothing changes. Fills `freed`. */
static void erase_look(struct wb_erasing *erase)
{
    struct wb_inode *start = wb_inode_of(erase->request->start);
    int r = start ? find(erase, start) : -EROFS;

    if (r == 0)
        r = check(erase);
    erase->result = r == 0 ? measure(erase) : r;
}

/*
 * All but the past: finds it, whether the caller may, and removes what is there if that is to go. `result`: 0, or why
 * nothing more is to be done.
 */
static void erase_present(struct wb_erasing *erase)
{
    struct wb_inode *start = wb_inode_of(erase->request->start);
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

static void erasing_release(struct wb_erasing *erase)
{
    wb_revision_unref(erase->revision_dir);
    wb_inode_unref(erase->request->session, erase->dir);
    g_free(erase->name);
}

_Static_assert(WB_CONTROL_ERASE_NAMES_MAX * sizeof(struct wb_control_erased_name) <= WB_CONTROL_DATA_MAX,
               "a reply fits");

/* ---- the past -------------------------------------------------------------------------------- */

/* What nodes know of logs and graves is to be found out again. With the tree to ourselves. */
static void forget_hints(struct wb_session *session)
{
    struct wb_nodes *nodes = &session->nodes;

    pthread_mutex_lock(&nodes->lock);
    for (size_t i = 0; i < nodes->bucket_count; i++) {
        for (struct wb_inode *inode = nodes->buckets[i]; inode; inode = inode->hash_next) {
            inode->has_undo = false;
            if (wb_inode_is_dir(inode))
                inode->dir.has_catalog = false;
            inode->buried = WB_BURIED_UNKNOWN;
        }
    }
    pthread_mutex_unlock(&nodes->lock);
}

static unsigned keep_flags(unsigned flags)
{
    return (flags & WB_CONTROL_ERASE_RECURSIVE ? WB_ERASE_RECURSIVE : 0) |
           (flags & WB_CONTROL_ERASE_PRESENT ? WB_ERASE_PRESENT : 0);
}

static void begin_past(struct wb_session *session)
{
    wb_ns_write_lock(session);
    wb_stages_end_all(session); /* what they keep may be what is erased */
}

static void end_past(struct wb_session *session)
{
    forget_hints(session);
    wb_ns_unlock(session);
    session->dirty = true;
    wb_control_pages_drop(session->past);
    wb_past_perm_free_all(session);
    wb_past_renew(session);
}

static void take_result(struct wb_erasing *erase, int r)
{
    struct wb_error why = {""};

    if (r < 0 && r != -ENOENT && r != -EISDIR && r != -EPERM) {
        wb_erase_report(&why, r, erase->name);
        wb_log_msg("%s", why.text);
    }
    /* What never changed has no history, and now it has none. */
    if (r == -ENOENT && erase->present && !(erase->flags & WB_CONTROL_ERASE_PRESENT))
        r = 0;
    else if (r == -ENOENT && wb_past_is_moment(erase->request->session, erase->name))
        r = -EROFS;
    if (erase->freed.all > 0)
        erase->count.bytes = erase->freed.all;
    erase->result = r;
}

/* `before`: that moment; 0: all. */
static void erase_past(struct wb_erasing *erase, int64_t before)
{
    struct wb_session *session = erase->request->session;
    struct wb_error why = {""};
    int r;

    begin_past(session);
    r = wb_erase(session->history, erase->revision_dir, erase->name, keep_flags(erase->flags), before,
                 fuse_req_ctx(erase->request->req)->uid, &erase->count, &why);
    end_past(session);
    take_result(erase, r);
}

/* Of those that are to go; `names` has room for all. */
static void erase_pasts(const struct wb_request *request, struct wb_erasing *erases, struct wb_erase_name *names,
                        unsigned count)
{
    struct wb_session *session = request->session;
    unsigned left = 0;

    for (unsigned i = 0; i < count; i++)
        if (erases[i].result == 0)
            names[left++] = (struct wb_erase_name){.dir = erases[i].revision_dir, .name = erases[i].name};
    if (left == 0)
        return;
    begin_past(session);
    wb_erase_names(session->history, names, left, keep_flags(erases[0].flags), fuse_req_ctx(request->req)->uid);
    end_past(session);
    for (unsigned i = 0; i < count; i++) {
        if (erases[i].result != 0)
            continue;
        erases[i].count = names->count;
        take_result(&erases[i], names++->result);
    }
}

/* ---- the request ----------------------------------------------------------------------------- */

static int carry_out(const struct wb_request *request, int64_t before, struct wb_control *out)
{
    struct wb_control_erased *reply = (struct wb_control_erased *)(void *)out->data;
    struct wb_erasing erase = {.request = request, .path = request->in->path, .flags = request->in->flags};

    erase_present(&erase);
    if (erase.result == 0)
        erase_past(&erase, before);
    erasing_release(&erase);
    reply->objects = erase.count.objects;
    reply->bytes = erase.count.bytes;
    return erase.result;
}

int wb_control_erase_measure(const struct wb_request *request, struct wb_control *out)
{
    struct wb_control_freed *reply = (struct wb_control_freed *)(void *)out->data;
    struct wb_erasing erase = {.request = request, .path = request->in->path,
                               .flags = request->in->flags & WB_CONTROL_ERASE_FORMER};

    erase_look(&erase);
    erasing_release(&erase);
    *reply = (struct wb_control_freed){erase.freed.history, erase.freed.all, erase.freed.shared};
    return erase.result;
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

/* All of the names, or -EINVAL: flags that are none, or not the same in all. */
static int take_names(const struct wb_request *request, struct wb_erasing *erases)
{
    const unsigned same = WB_CONTROL_ERASE_RECURSIVE | WB_CONTROL_ERASE_PRESENT;
    size_t used = 0;

    for (unsigned i = 0; i < request->in->count; i++) {
        const struct wb_control_erase_name *name = wb_control_erase_name(request->in, &used);

        if (!name || name->flags & ~(same | WB_CONTROL_ERASE_FORMER))
            return -EINVAL;
        erases[i] = (struct wb_erasing){.request = request, .path = name->path, .flags = name->flags};
        if ((erases[i].flags & same) != (erases[0].flags & same))
            return -EINVAL;
    }
    return 0;
}

int wb_control_erase_names(const struct wb_request *request, struct wb_control *out)
{
    struct wb_control_erased_name *reply = (struct wb_control_erased_name *)(void *)out->data;
    unsigned count = request->in->count;
    g_autofree struct wb_erase_name *names = NULL;
    g_autofree struct wb_erasing *erases = NULL;
    int r;

    if (count == 0 || count > WB_CONTROL_ERASE_NAMES_MAX)
        return -EINVAL;
    names = g_try_new0(struct wb_erase_name, count);
    erases = g_try_new0(struct wb_erasing, count);
    if (!names || !erases)
        return -ENOMEM;
    r = take_names(request, erases);
    if (r < 0)
        return r;
    for (unsigned i = 0; i < count; i++)
        erase_present(&erases[i]);
    erase_pasts(request, erases, names, count);
    for (unsigned i = 0; i < count; i++) {
        erasing_release(&erases[i]);
        reply[i].objects = erases[i].count.objects;
        reply[i].bytes = erases[i].count.bytes;
        reply[i].error = (uint32_t)-wb_past_result_of_tool(request->session, erases[i].result);
    }
    out->count = count;
    return 0;
}

/* ERASE_VERSIONS: what a file was between two changes of it vanishes; what it is, and all else it was, stays. */

/* What has the name, if it is the caller's. */
static int find_versions(const struct wb_request *request, int dir_fd, const char *name, struct wb_object *ret)
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

    wb_ns_write_lock(session);
    wb_stages_end_all(session);
    settled = wb_store_tick(session->store);
    wb_ns_unlock(session);
    return what->until < settled ? wb_erase_versions_look(session->store, what) : -EINVAL;
}

/* With the tree owned. */
static int erase(const struct wb_request *request, int dir_fd, const char *name, const struct wb_erase_versions *what,
                 struct wb_control_erased_versions *reply)
{
    struct wb_object object;
    int r = find_versions(request, dir_fd, name, &object);

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
    struct wb_inode *start = wb_inode_of(request->start), *dir = NULL;
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
        wb_inode_unref(session, dir);
        return r;
    }
    r = wb_caller_may(session, request->req, access.fd, W_OK | X_OK);
    if (r == 0)
        r = find_versions(request, access.fd, name, &what.object);
    if (r == 0)
        r = look_around(session, &what);
    if (r == 0) {
        /* Not with the tree owned: the kernel answers when those who read have their answers. */
        wb_past_alter_begin(session, what.object);
        wb_ns_write_lock(session);
        wb_stages_end_all(session);
        r = erase(request, access.fd, name, &what, reply);
        wb_ns_unlock(session);
        session->dirty = true;
        wb_control_pages_drop(session->past);
        wb_past_perm_free_all(session);
        wb_past_alter_end(session, what.object);
    }
    wb_access_put(session, &access);
    wb_inode_unref(session, dir);
    return r;
}
