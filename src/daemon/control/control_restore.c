/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* RESTORE: a name is bound to an object that was lost, or has other names, without copying it. */
#include "daemon/control/control.h"

#include "base/cleanup.h"
#include "base/io.h"
#include "base/xattr.h"
#include "daemon/caller/creds.h"
#include "daemon/keeper/enospc_retry.h"
#include "daemon/keeper/keeper.h"
#include "daemon/live/io.h"
#include "daemon/live/mutation.h"
#include "daemon/live/ops.h"
#include "daemon/live/stage.h"
#include "daemon/past/past_access.h"
#include "daemon/past/walk.h"
#include "store/graveyard/bundle.h"
#include "wayback/when.h"
#include <errno.h>
#include <fcntl.h>
#include <glib.h>
#include <string.h>

struct restore {
    const struct wb_request *request;
    struct wb_revision *source;
    struct wb_object object;
    bool is_dir;
    struct wb_inode *dir; /* where the name goes */
    char *name;
    struct wb_access to;
    struct wb_inode *from_dir; /* a living name of the object, or NULL: the graveyard has it */
    char *from_name;
    struct wb_access from;
    struct wb_inode *node, *victim;
    struct stat victim_st;
    struct wb_pin pin; /* leads to the victim */
};

static void deinit(struct restore *restore)
{
    struct wb_session *session = restore->request->session;

    if (restore->victim)
        wb_io_pin_end(session, fuse_req_ctx(restore->request->req)->uid, restore->victim, &restore->pin, false);
    wb_inode_unref(session, restore->victim);
    wb_inode_unref(session, restore->node);
    wb_access_put(session, &restore->from);
    wb_access_put(session, &restore->to);
    wb_inode_unref(session, restore->from_dir);
    wb_inode_unref(session, restore->dir);
    g_free(restore->from_name);
    g_free(restore->name);
    wb_revision_unref(restore->source);
}

static int find_target(struct restore *restore, struct wb_inode *start)
{
    const struct wb_request *request = restore->request;
    int r;

    r = wb_walk(request->session, request->req, start, request->in->path, &restore->dir, &restore->name);
    if (r < 0)
        return r;
    if (!*restore->name)
        return -EEXIST;
    if (wb_name_is_hidden(request->session, restore->dir, restore->name))
        return -EPERM;
    r = wb_access_get(request->session, restore->dir, &restore->to);
    return r < 0 ? r : wb_caller_may(request->session, request->req, restore->to.fd, W_OK | X_OK);
}

static int find_source(struct restore *restore)
{
    const struct wb_request *request = restore->request;
    struct wb_revision *dir __attribute__((cleanup(wb_revision_unrefp))) = NULL;
    struct wb_location location = {0};
    g_autofree char *name = NULL;
    int r;

    r = wb_control_find(request, request->in->source, &dir, &name);
    if (r == 0)
        r = wb_control_entry(request, dir, name, &restore->source);
    if (r == 0)
        r = wb_revision_resolve(request->session->history, restore->source, &location);
    if (r != 0)
        return r == WB_ABSENT ? -ENOENT : r;
    /* What is to come back must not go for it. */
    if (wb_revision_when(restore->source) != WB_WHEN_PRESENT)
        wb_enospc_retry_about(wb_revision_when(restore->source));
    restore->object = wb_revision_object(restore->source);
    restore->is_dir = wb_revision_type(restore->source) == S_IFDIR;
    if (location.state == WB_LINKED) {
        r = wb_walk(request->session, NULL, request->session->nodes.root, location.path, &restore->from_dir,
                    &restore->from_name);
        if (r == 0)
            r = wb_access_get(request->session, restore->from_dir, &restore->from);
    } else if (location.state == WB_LOST) {
        r = -ENOENT;
    }
    g_free(location.path);
    return r;
}

/*
 * Power that its owner could not give it: that of a group of others, or capabilities. It ended with the last name in
 * the tree, whoever removed that. 1, 0 or -errno.
 */
static int has_power(fuse_req_t req, int fd, const struct stat *st)
{
    ssize_t n;

    if (!S_ISREG(st->st_mode))
        return 0;
    if (st->st_mode & S_ISGID && !wb_caller_in_group(req, st->st_gid))
        return 1;
    n = wb_getxattr_fd(fd, "security.capability", NULL, 0);
    return n == -ENODATA || n == -EOPNOTSUPP ? 0 : n < 0 ? (int)n : 1;
}

/*
 * Its owner may bind it again, from where he may go now. Anybody else would make a file of another's, and get what it
 * became after the moment he could read: he gets a copy (-EXDEV), which the tools make by themselves.
 */
static int check_object(struct restore *restore)
{
    const struct wb_request *request = restore->request;
    uid_t uid = fuse_req_ctx(request->req)->uid;
    _cleanup_close_ int fd = -1;
    struct stat st;
    int r;

    if (uid == 0)
        return 0;
    fd = wb_revision_open_present(request->session->history, restore->source, O_PATH | O_CLOEXEC);
    if (fd < 0)
        return fd;
    if (fstat(fd, &st) < 0)
        return -errno;
    if (st.st_uid != uid)
        return -EXDEV;
    r = restore->from_dir ? 0 : has_power(request->req, fd, &st);
    if (r != 0)
        return r < 0 ? r : -EXDEV;
    return wb_past_may_now(request->session, request->req, restore->source, 0);
}

/* What has the name now, and whether the caller may take it away. */
static int look_at_victim(struct restore *restore)
{
    const struct wb_request *request = restore->request;
    struct wb_session *session = request->session;
    uid_t uid = fuse_req_ctx(request->req)->uid;
    struct wb_object object;
    struct stat dir;
    int r;

    r = wb_object_stat(session->store, restore->to.fd, restore->name, &object, NULL,
                       &restore->victim_st);
    if (r == -ENOENT)
        return 0;
    if (r < 0)
        return r;
    if (fstat(restore->to.fd, &dir) < 0)
        return -errno;
    if (uid != 0 && (dir.st_mode & S_ISVTX) && dir.st_uid != uid && restore->victim_st.st_uid != uid)
        return -EPERM;
    restore->victim = wb_inode_find(session, object);
    return 0;
}

/* What the nodes must know. With all locks held. */
static void follow(struct restore *restore)
{
    struct wb_session *session = restore->request->session;

    if (restore->victim && restore->victim != restore->node) {
        restore->victim->buried = WB_BURIED_YES;
        wb_inode_unbind(session, restore->victim, restore->dir, restore->name, restore->victim_st.st_nlink <= 1);
        wb_io_pin_end(session, fuse_req_ctx(restore->request->req)->uid, restore->victim, &restore->pin, true);
        session->graves[restore->victim->node.object.ino & 0xff] = 1;
    }
    if (restore->node) {
        wb_inode_bind(session, restore->node, restore->dir, restore->name, NULL, NULL);
        restore->node->buried = WB_BURIED_UNKNOWN;
        restore->node->sync_all = true;
    }
    session->graves[restore->object.ino & 0xff] = 1;
    restore->dir->lost_names = restore->dir->sync_all = true;
}

/* Packed, and longer than what is made free at a time: all of the history might go for it, and in vain. */
static bool is_too_large(const struct restore *restore)
{
    struct wb_session *session = restore->request->session;
    struct wb_store *store = session->store;
    struct wb_body body;
    struct stat st;
    uint64_t size = 0;
    int r;

    if (restore->is_dir || restore->from_dir || wb_bundle_stat(store, restore->object, WB_FILE_BUNDLE, &st) != 0)
        return false;
    r = wb_body_init(&body, store, restore->object, wb_grave_open(store, restore->object, false, O_RDONLY));
    if (r == 0)
        r = wb_body_size(&body, &size);
    wb_body_deinit(&body);
    return r < 0 || size > wb_keeper_room_at_once(session);
}

static int make(struct restore *restore)
{
    const struct wb_request *request = restore->request;
    struct wb_session *session = request->session;
    struct wb_dir to;
    int r;

    /* While a directory comes back, nobody may be walking from a node in it up to the root. */
    if (restore->is_dir)
        wb_ns_write_lock(session);
    else
        wb_ns_read_lock(session);
    wb_inode_lock_two(restore->node, restore->victim);
    if (restore->victim)
        wb_inode_mask_nlink(session, restore->victim, &restore->victim_st);
    to = wb_inode_dir(restore->dir, restore->to.fd);
    r = wb_enospc_retry_recorded(wb_stage_end_locked(session, restore->node));
    if (r == 0)
        r = wb_enospc_retry_recorded(wb_stage_end_locked(session, restore->victim));
    if (r == 0 && restore->victim && restore->victim != restore->node)
        r = wb_io_pin_begin(session, fuse_req_ctx(request->req)->uid, restore->victim, restore->dir, restore->to.fd,
                            restore->name, restore->victim_st.st_nlink, true, &restore->pin);
    if (r == 0) {
        r = wb_capture_restore(session->store, &to, restore->name, restore->object, restore->is_dir,
                               restore->from_dir ? restore->from.fd : -1, restore->from_name,
                               wb_actor_of(session, request->req));
        if (r < 0 && (to.unrecorded || !is_too_large(restore)))
            wb_enospc_retry_made(session, to.unrecorded, r);
    }
    wb_inode_learn(restore->dir, &to);
    session->dirty = true;
    if (r == 0)
        follow(restore);
    wb_inode_unlock_two(restore->node, restore->victim);
    wb_ns_unlock(session);
    return r;
}

int wb_control_restore(const struct wb_request *request, struct wb_control *out)
{
    struct restore restore = {.request = request, .to = {.fd = -1}, .from = {.fd = -1}, .pin = WB_PIN_NONE};
    struct wb_inode *start = wb_inode_of(request->start);
    int r;

    (void)out;
    if (!start)
        return -EROFS;
    r = find_target(&restore, start);
    if (r == 0)
        r = find_source(&restore);
    if (r == 0)
        r = check_object(&restore);
    if (r == 0)
        r = look_at_victim(&restore);
    if (r == 0) {
        restore.node = wb_inode_find(request->session, restore.object);
        wb_io_make_room(request->session);
        r = make(&restore);
    }
    if (r == 0) {
        wb_control_forget_name(request->session, restore.dir, restore.name);
        wb_control_forget_attrs(request->session, restore.victim);
        wb_control_forget_attrs(request->session, restore.node);
    }
    deinit(&restore);
    return r;
}
