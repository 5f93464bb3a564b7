/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "daemon/live/mutation.h"

#include "base/io.h"
#include "base/xattr.h"
#include "daemon/caller/creds.h"
#include "daemon/core/access.h"
#include "daemon/core/below.h"
#include "daemon/core/kcache_invalidate.h"
#include "daemon/keeper/enospc_retry.h"
#include "daemon/live/io.h"
#include "daemon/live/ops.h"
#include "daemon/live/recording.h"
#include "daemon/live/stage.h"
#include "store/cache/preclone.h"
#include "store/inflight/spans.h"
#include <errno.h>
#include <fcntl.h>
#include <glib.h>

/* A file whose version could not be recorded yet; keeps the node. */
struct wb_overdue {
    struct wb_overdue *next;
    struct wb_inode *inode;
};

static void mutation_target(struct wb_mutation *mutation);

/* Before and after a change of content, for wb_mutation_content; false: it is to be recorded by itself. */
static bool stage_takes(struct wb_mutation *mutation)
{
    struct wb_session *session = mutation->session;
    struct wb_inode *inode = mutation->inode;

    return S_ISREG(mutation->st.st_mode) && !mutation->target.unborn &&
           (inode->stage ||
            (wb_recording_of(session, inode) == WB_RECORDING_CLOSE && wb_handle_has_writer(session, inode)));
}

static int stage_take(struct wb_mutation *mutation, int read_fd, const struct wb_overwrite *overwrite)
{
    struct wb_store *store = mutation->session->store;
    struct wb_inode *inode = mutation->inode;
    struct wb_stage *stage = inode->stage;
    int r = 0;

    if (!stage) {
        r = wb_stage_begin(&stage, store, &mutation->target, mutation->fd, mutation->actor);
        inode->stage = stage;
    }
    if (r == 0)
        r = wb_stage_content(store, &mutation->change, &mutation->target, stage, read_fd, overwrite, mutation->actor);
    if (r >= 0) {
        mutation->staged = true;
        mutation->overwrite = *overwrite;
    }
    return r;
}

/* Without memory for it, whoever comes next to the file ends the stage. */
static void note_overdue(struct wb_session *session, struct wb_inode *inode)
{
    struct wb_overdue *overdue = inode->overdue ? NULL : g_try_new(struct wb_overdue, 1);

    inode->overdue = true;
    if (!overdue)
        return;
    overdue->inode = inode;
    pthread_mutex_lock(&session->nodes.lock);
    inode->refs++;
    overdue->next = session->overdue;
    session->overdue = overdue;
    pthread_mutex_unlock(&session->nodes.lock);
}

int wb_stage_end_mutation(struct wb_mutation *mutation)
{
    struct wb_inode *inode = mutation->inode;
    int r;

    if (!inode->stage)
        return 0;
    mutation->session->dirty = true;
    r = wb_stage_end(mutation->session->store, inode->stage, &mutation->target);
    if (r < 0) {
        note_overdue(mutation->session, inode);
        return r;
    }
    inode->stage = NULL;
    inode->overdue = false;
    return 0;
}

/*
 * Before a change of content: ends a stage that could not be ended before, or beside which another process changed the
 * file in bare SRC. The next one begins with the content that is found then, behind a GAP.
 */
static int stage_end_overdue(struct wb_mutation *mutation)
{
    struct wb_inode *inode = mutation->inode;

    return inode->overdue ||
                   (inode->stage && !wb_spans_has(mutation->session->store, mutation->attrs.ctime, false))
               ? wb_stage_end_mutation(mutation)
               : 0;
}

int wb_stage_end_locked(struct wb_session *session, struct wb_inode *inode)
{
    struct wb_mutation mutation = {.session = session, .inode = inode};
    struct wb_lower *lower;
    int r;

    if (!inode || !inode->stage)
        return 0;
    /* As long as there is a stage somebody has the file open. */
    lower = wb_lower_any(session, inode);
    r = lower && fstat(lower->fd, &mutation.st) < 0 ? -errno : 0;
    if (!lower)
        mutation.st.st_nlink = inode->stage->entry.attrs.nlink;
    if (r == 0) {
        if (lower)
            wb_inode_mask_nlink(session, inode, &mutation.st);
        mutation_target(&mutation);
        mutation.target.known = NULL;
        r = wb_stage_end_mutation(&mutation);
        inode->has_undo = mutation.target.has_undo;
        wb_inode_unref(session, mutation.parent);
    }
    wb_lower_put(session, lower, false);
    return r;
}

static int end_stage(struct wb_session *session, struct wb_inode *inode, int fd, bool unless_written)
{
    struct wb_mutation mutation;
    int r;

    if (!inode->stage)
        return 0;
    r = wb_mutation_lock(&mutation, session, NULL, inode, fd);
    if (r < 0)
        return r;
    if (!unless_written || !wb_handle_has_writer(session, inode))
        r = wb_stage_end_mutation(&mutation);
    wb_mutation_unlock(&mutation);
    return r;
}

int wb_stage_end_now(struct wb_session *session, struct wb_inode *inode, int fd)
{
    return end_stage(session, inode, fd, false);
}

int wb_stage_end_unwritten(struct wb_session *session, struct wb_inode *inode, int fd)
{
    return end_stage(session, inode, fd, true);
}

void wb_stages_retry(struct wb_session *session)
{
    struct wb_overdue *list, *next;

    if (!__atomic_load_n(&session->overdue, __ATOMIC_RELAXED))
        return;
    pthread_mutex_lock(&session->nodes.lock);
    list = session->overdue;
    session->overdue = NULL;
    pthread_mutex_unlock(&session->nodes.lock);
    for (; list; list = next) {
        struct wb_inode *inode = list->inode;
        bool again;

        next = list->next;
        wb_ns_read_lock(session);
        pthread_mutex_lock(&inode->lock);
        again = inode->overdue && wb_stage_end_locked(session, inode) < 0;
        pthread_mutex_unlock(&inode->lock);
        wb_ns_unlock(session);
        if (again) {
            pthread_mutex_lock(&session->nodes.lock);
            list->next = session->overdue;
            session->overdue = list;
            pthread_mutex_unlock(&session->nodes.lock);
        } else {
            wb_inode_unref(session, inode);
            g_free(list);
        }
    }
}

/* One that has a stage, referenced, or NULL. */
static struct wb_inode *find_staged(struct wb_session *session)
{
    struct wb_inode *inode = NULL;

    pthread_mutex_lock(&session->nodes.lock);
    for (struct wb_overdue *overdue = session->overdue; overdue && !inode; overdue = overdue->next)
        if (overdue->inode->stage)
            inode = overdue->inode;
    for (struct wb_handle *handle = session->nodes.writers; handle && !inode; handle = handle->writers_next)
        if (handle->inode->stage)
            inode = handle->inode;
    if (inode)
        inode->refs++;
    pthread_mutex_unlock(&session->nodes.lock);
    return inode;
}

void wb_stages_end_all(struct wb_session *session)
{
    struct wb_inode *inode;

    /* Ends: each turn takes a stage from its node, whether its end could be written or not. */
    while (wb_stages_may_be(session) && (inode = find_staged(session))) {
        pthread_mutex_lock(&inode->lock);
        if (wb_stage_end_locked(session, inode) < 0) {
            inode->stage = wb_stage_free(inode->stage);
            inode->overdue = false;
        }
        pthread_mutex_unlock(&inode->lock);
        wb_inode_unref(session, inode);
    }
}

void wb_stages_deinit(struct wb_session *session)
{
    struct wb_overdue *next;

    wb_stages_end_all(session);
    for (; session->overdue; session->overdue = next) {
        next = session->overdue->next;
        g_free(session->overdue);
    }
}

void wb_op_flush(struct wb_session *session, fuse_req_t req, struct wb_inode *inode, struct wb_handle *handle)
{
    int r = 0;

    if (!handle)
        r = wb_io_take_error(session, inode);
    else if (handle->writes)
        r = wb_enospc_retry_recorded(wb_stage_end_now(session, inode, handle->fd));
    wb_enospc_retry_reply(req, -r);
}

uint32_t wb_actor_of(struct wb_session *session, fuse_req_t req)
{
    const struct fuse_ctx *ctx;

    if (!req || !session->recording)
        return 0;
    ctx = fuse_req_ctx(req);
    return wb_store_actor(session->store, ctx->uid, ctx->gid, (uint32_t)ctx->pid);
}

bool wb_caller_kills_suidgid(fuse_req_t req)
{
    /* CAP_FSETID decides, but a FUSE request does not contain it; root has it, others hardly ever. */
    return fuse_req_ctx(req)->uid != 0;
}

/* With inode->lock held: the parent cannot change under a rename, and the reference keeps it. */
static void mutation_target(struct wb_mutation *mutation)
{
    struct wb_session *session = mutation->session;
    struct wb_inode *inode = mutation->inode;
    struct wb_target *target = &mutation->target;

    pthread_mutex_lock(&session->nodes.lock);
    mutation->parent = inode->parent;
    if (mutation->parent)
        mutation->parent->refs++;
    if (mutation->parent && inode->name) {
        g_strlcpy(mutation->name, inode->name, sizeof(mutation->name));
        target->name = mutation->name;
    }
    pthread_mutex_unlock(&session->nodes.lock);

    target->object = inode->node.object;
    target->parent = mutation->parent ? &mutation->parent->dir : NULL;
    target->self = wb_inode_is_dir(inode) ? &inode->dir : NULL;
    target->nlink = (uint32_t)mutation->st.st_nlink;
    target->has_undo = inode->has_undo;
    target->unborn = inode->unborn;
    target->known = &mutation->attrs;
}

/* One look serves the operation and what is recorded before it. */
static int look(struct wb_mutation *mutation)
{
    struct wb_session *session = mutation->session;

    if (session->recording)
        return wb_object_stat(session->store, mutation->fd, NULL, NULL, &mutation->attrs, &mutation->st);
    return fstat(mutation->fd, &mutation->st) < 0 ? -errno : 0;
}

int wb_mutation_lock(struct wb_mutation *mutation, struct wb_session *session, fuse_req_t req, struct wb_inode *inode,
                     int fd)
{
    int r;

    *mutation = (struct wb_mutation){.session = session, .inode = inode, .fd = fd, .size_after = -1};
    mutation->actor = wb_actor_of(session, req);
    wb_ns_read_lock(session);
    pthread_mutex_lock(&inode->lock);
    r = look(mutation);
    if (r < 0) {
        pthread_mutex_unlock(&inode->lock);
        wb_ns_unlock(session);
        return r;
    }
    wb_inode_mask_nlink(session, inode, &mutation->st);
    wb_below_compare(inode, &mutation->st);
    if (session->recording)
        mutation_target(mutation);
    return 0;
}

void wb_mutation_unlock(struct wb_mutation *mutation)
{
    if (mutation->session->recording)
        mutation->inode->has_undo = mutation->target.has_undo;
    pthread_mutex_unlock(&mutation->inode->lock);
    wb_ns_unlock(mutation->session);
    wb_inode_unref(mutation->session, mutation->parent);
}

/* What follows may change the attributes: a second record looks again. */
static int begun(struct wb_mutation *mutation, int r)
{
    mutation->target.known = NULL;
    if (r < 0)
        return wb_enospc_retry_recorded(r);
    mutation->session->dirty = true;
    return 0;
}

/* Whether wayback.conf leaves it out: then all is done that has to be before. 1, 0, or -errno. */
static int is_left_out(struct wb_mutation *mutation)
{
    struct wb_session *session = mutation->session;
    struct wb_inode *inode = mutation->inode;
    int r;

    if (wb_recording_of(session, inode) != WB_RECORDING_NONE || (!wb_inode_is_dir(inode) && mutation->st.st_nlink > 1))
        return 0;
    r = wb_enospc_retry_recorded(wb_stage_end_mutation(mutation));
    if (r == 0)
        r = wb_recording_cover(session, inode, &mutation->target, mutation->fd, &mutation->change);
    mutation->target.known = NULL;
    return r < 0 ? r : 1;
}

int wb_mutation_content(struct wb_mutation *mutation, int read_fd, const struct wb_overwrite *overwrite)
{
    struct wb_store *store = wb_recorder(mutation->session);
    int r;

    mutation->size_after = (int64_t)overwrite->size_after;
    if (!store)
        return 0;
    mutation->staged = false;
    r = is_left_out(mutation);
    if (r != 0) {
        if (r > 0)
            wb_preclone_release(store, mutation->target.object);
        return MIN(r, 0);
    }
    r = wb_enospc_retry_recorded(stage_end_overdue(mutation));
    if (r < 0)
        return r;
    if (stage_takes(mutation))
        return begun(mutation, stage_take(mutation, read_fd, overwrite));
    return begun(mutation,
                 wb_capture_content(store, &mutation->change, &mutation->target, read_fd, overwrite, mutation->actor));
}

int wb_mutation_attrs(struct wb_mutation *mutation, enum wb_op op)
{
    struct wb_store *store = wb_recorder(mutation->session);
    int r;

    if (!store)
        return 0;
    mutation->staged = false;
    r = is_left_out(mutation);
    if (r != 0)
        return MIN(r, 0);
    r = wb_enospc_retry_recorded(stage_end_overdue(mutation));
    if (r < 0)
        return r;
    /* What happens to content belongs to its stage, also where it alters nothing but times. */
    if (wb_op_has(op, WB_EFFECT_CONTENT) && stage_takes(mutation)) {
        uint64_t size = (uint64_t)mutation->st.st_size;
        struct wb_overwrite overwrite = {.op = op, .offset = size, .size_after = size};

        return begun(mutation, stage_take(mutation, mutation->fd, &overwrite));
    }
    r = wb_enospc_retry_recorded(wb_stage_end_mutation(mutation));
    if (r < 0)
        return r;
    return begun(mutation,
                 wb_capture_attrs(store, &mutation->change, &mutation->target, mutation->fd, op, mutation->actor));
}

int wb_mutation_xattr(struct wb_mutation *mutation, const char *name, enum wb_op op)
{
    struct wb_store *store = wb_recorder(mutation->session);
    int r;

    if (!store)
        return 0;
    mutation->staged = false;
    r = is_left_out(mutation);
    if (r != 0)
        return MIN(r, 0);
    r = wb_enospc_retry_recorded(wb_stage_end_mutation(mutation));
    if (r < 0)
        return r;
    return begun(mutation, wb_capture_xattr(store, &mutation->change, &mutation->target, mutation->fd, name, op,
                                            mutation->actor));
}

int wb_mutation_end(struct wb_mutation *mutation, int result)
{
    if (mutation->session->recording) {
        int64_t when = mutation->change.when;

        /* A device that fails may have changed the half of it. The record stays then: kept for
         * nothing it is harmless, aborted it would be missed. */
        if (mutation->staged)
            wb_stage_finish(mutation->inode->stage, &mutation->overwrite, result);
        wb_capture_end(&mutation->change, result == -EIO ? 0 : result);
        if (mutation->staged && result < 0)
            wb_stage_failed(mutation->inode->stage, mutation->session->store, mutation->fd, when, result);
    }
    if (mutation->size_after >= 0)
        wb_below_note(mutation->inode, result < 0 ? WB_SIZE_UNSURE : mutation->size_after + 1);
    mutation->size_after = -1;
    return result;
}

static bool has_capability(int fd)
{
    return wb_getxattr_fd(fd, "security.capability", NULL, 0) > 0;
}

static int remove_capability(struct wb_mutation *mutation)
{
    int r = wb_mutation_xattr(mutation, "security.capability", WB_OP_REMOVEXATTR);

    return r < 0 ? r : wb_mutation_end(mutation, wb_removexattr_fd(mutation->fd, "security.capability"));
}

static int remove_mode_bits(struct wb_mutation *mutation, mode_t bits)
{
    mode_t mode = mutation->st.st_mode & ~bits;
    int r = wb_mutation_attrs(mutation, WB_OP_CHMOD);

    if (r == 0)
        r = wb_mutation_end(mutation, wb_chmod_fd(mutation->fd, mode & 07777));
    if (r < 0)
        return r;
    mutation->st.st_mode = mode;
    return 0;
}

int wb_mutation_kill_privileges(struct wb_mutation *mutation, fuse_req_t by)
{
    struct wb_inode *inode = mutation->inode;
    mode_t mode = mutation->st.st_mode, killed = 0;
    bool capability;
    int r = 0;

    if (inode->no_privileges || !S_ISREG(mode))
        return 0;
    if (by && mode & S_ISUID)
        killed |= S_ISUID;
    if (by && mode & S_ISGID && (mode & S_IXGRP || !wb_caller_in_group(by, mutation->st.st_gid)))
        killed |= S_ISGID;
    capability = has_capability(mutation->fd);
    if (capability)
        r = remove_capability(mutation);
    if (r == 0 && killed)
        r = remove_mode_bits(mutation, killed);
    /* execve(2) reads the mode from the kernel's cache, and only the reply to a SETATTR would renew it there. */
    if (killed)
        wb_kcache_invalidate_attrs(mutation->session, inode);
    /* Asked once per node, not once per write. */
    inode->no_privileges = r == 0 && !(mode & (S_ISUID | S_ISGID)) && !capability;
    return r;
}
