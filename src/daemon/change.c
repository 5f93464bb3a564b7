/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "daemon/change.h"

#include "base/io.h"
#include "daemon/access.h"
#include "daemon/again.h"
#include "daemon/creds.h"
#include "daemon/stage.h"
#include <errno.h>
#include <fcntl.h>
#include <glib.h>

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
    /* CAP_FSETID decides, of which FUSE tells nothing here; root has it, others hardly ever. */
    return fuse_req_ctx(req)->uid != 0;
}

/* With live->lock held: the parent cannot change under a rename, and the reference keeps it. */
void wb_subject_target(struct wb_subject *subject)
{
    struct wb_session *session = subject->session;
    struct wb_live *live = subject->live;
    struct wb_target *target = &subject->target;

    pthread_mutex_lock(&session->nodes.lock);
    subject->parent = live->parent;
    if (subject->parent)
        subject->parent->refs++;
    if (subject->parent && live->name) {
        g_strlcpy(subject->name, live->name, sizeof(subject->name));
        target->name = subject->name;
    }
    pthread_mutex_unlock(&session->nodes.lock);

    target->object = live->node.object;
    target->parent = subject->parent ? &subject->parent->dir : NULL;
    target->self = wb_live_is_dir(live) ? &live->dir : NULL;
    target->nlink = (uint32_t)subject->st.st_nlink;
    target->has_undo = live->has_undo;
    target->unborn = live->unborn;
    target->known = &subject->attrs;
}

/* One look serves the operation and what is recorded before it. */
static int look(struct wb_subject *subject)
{
    struct wb_session *session = subject->session;

    if (session->recording)
        return wb_object_stat(session->store, subject->fd, NULL, NULL, &subject->attrs, &subject->st);
    return fstat(subject->fd, &subject->st) < 0 ? -errno : 0;
}

int wb_subject_lock(struct wb_subject *subject, struct wb_session *session, fuse_req_t req,
                    struct wb_live *live, int fd)
{
    int r;

    *subject = (struct wb_subject){.session = session, .live = live, .fd = fd};
    subject->actor = wb_actor_of(session, req);
    wb_tree_share(session);
    pthread_mutex_lock(&live->lock);
    r = look(subject);
    if (r < 0) {
        pthread_mutex_unlock(&live->lock);
        wb_tree_release(session);
        return r;
    }
    wb_live_mask_nlink(session, live, &subject->st);
    if (session->recording)
        wb_subject_target(subject);
    return 0;
}

void wb_subject_unlock(struct wb_subject *subject)
{
    if (subject->session->recording)
        subject->live->has_undo = subject->target.has_undo;
    pthread_mutex_unlock(&subject->live->lock);
    wb_tree_release(subject->session);
    wb_live_unref(subject->session, subject->parent);
}

/* What follows may change the attributes: a second record looks again. */
static int begun(struct wb_subject *subject, int r)
{
    subject->target.known = NULL;
    if (r < 0)
        return wb_again_recorded(r);
    subject->session->dirty = true;
    return 0;
}

int wb_subject_content(struct wb_subject *subject, int read_fd, const struct wb_loss *loss)
{
    struct wb_store *store = wb_recorder(subject->session);
    int r;

    if (!store)
        return 0;
    subject->staged = false;
    r = wb_again_recorded(wb_stage_end_overdue(subject));
    if (r < 0)
        return r;
    if (wb_stage_takes(subject))
        return begun(subject, wb_stage_take(subject, read_fd, loss));
    return begun(subject, wb_capture_content(store, &subject->change, &subject->target, read_fd,
                                             loss, subject->actor));
}

int wb_subject_attrs(struct wb_subject *subject, enum wb_op op)
{
    struct wb_store *store = wb_recorder(subject->session);
    int r;

    if (!store)
        return 0;
    subject->staged = false;
    r = wb_again_recorded(wb_stage_end_overdue(subject));
    if (r < 0)
        return r;
    /* What happens to content belongs to its stage, also where it alters nothing but times. */
    if (op >= WB_OP_WRITE && op <= WB_OP_COPY && wb_stage_takes(subject)) {
        uint64_t size = (uint64_t)subject->st.st_size;
        struct wb_loss loss = {.op = op, .offset = size, .size_after = size};

        return begun(subject, wb_stage_take(subject, subject->fd, &loss));
    }
    r = wb_again_recorded(wb_stage_end_subject(subject));
    if (r < 0)
        return r;
    return begun(subject, wb_capture_attrs(store, &subject->change, &subject->target, subject->fd,
                                           op, subject->actor));
}

int wb_subject_xattr(struct wb_subject *subject, const char *name, enum wb_op op)
{
    struct wb_store *store = wb_recorder(subject->session);
    int r;

    if (!store)
        return 0;
    subject->staged = false;
    r = wb_again_recorded(wb_stage_end_subject(subject));
    if (r < 0)
        return r;
    return begun(subject, wb_capture_xattr(store, &subject->change, &subject->target, subject->fd,
                                           name, op, subject->actor));
}

int wb_subject_end(struct wb_subject *subject, int result)
{
    if (subject->session->recording) {
        int64_t when = subject->change.when;

        /* A device that fails may have changed the half of it. The record stays then: kept for
         * nothing it is harmless, aborted it would be missed. */
        if (subject->staged)
            wb_stage_settle(subject->live->stage, &subject->loss, result);
        wb_capture_end(&subject->change, result == -EIO ? 0 : result);
        if (subject->staged && result < 0)
            wb_stage_failed(subject->live->stage, subject->session->store, subject->fd, when, result);
    }
    return result;
}

static bool has_capability(int fd)
{
    return wb_getxattr_fd(fd, "security.capability", NULL, 0) > 0;
}

static void remove_capability(struct wb_subject *subject)
{
    if (wb_subject_xattr(subject, "security.capability", WB_OP_REMOVEXATTR) < 0)
        return;
    wb_subject_end(subject, wb_removexattr_fd(subject->fd, "security.capability"));
}

void wb_subject_kill_privileges(struct wb_subject *subject, fuse_req_t by)
{
    struct wb_live *live = subject->live;
    mode_t mode = subject->st.st_mode, killed = 0;
    bool capability;

    if (live->no_privileges || !S_ISREG(mode))
        return;
    if (by && mode & S_ISUID)
        killed |= S_ISUID;
    if (by && mode & S_ISGID && (mode & S_IXGRP || !wb_caller_in_group(by, subject->st.st_gid)))
        killed |= S_ISGID;
    capability = has_capability(subject->fd);
    if (capability)
        remove_capability(subject);
    if (killed && wb_subject_attrs(subject, WB_OP_CHMOD) == 0) {
        if (wb_subject_end(subject, wb_chmod_fd(subject->fd, (mode & ~killed) & 07777)) == 0)
            subject->st.st_mode &= ~killed;
    }
    /* Asked once per node, not once per write. */
    live->no_privileges = !(mode & (S_ISUID | S_ISGID)) && !capability;
}
