/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "daemon/live/change.h"

#include "base/io.h"
#include "base/xattr.h"
#include "daemon/caller/creds.h"
#include "daemon/core/access.h"
#include "daemon/core/below.h"
#include "daemon/core/doubt.h"
#include "daemon/keeper/again.h"
#include "daemon/live/ops.h"
#include "daemon/live/recording.h"
#include "daemon/live/stage.h"
#include "store/cache/ahead.h"
#include <errno.h>
#include <fcntl.h>
#include <glib.h>

/* A file whose version could not be recorded yet; keeps the node. */
struct wb_overdue {
    struct wb_overdue *next;
    struct wb_live *live;
};

static void subject_target(struct wb_subject *subject);

/* Before and after a change of content that subject_content was asked for; false: it is to be recorded by itself. */
static bool stage_takes(struct wb_subject *subject)
{
    struct wb_session *session = subject->session;
    struct wb_live *live = subject->live;

    return S_ISREG(subject->st.st_mode) && !subject->target.unborn &&
           (live->stage ||
            (wb_recording_of(session, live) == WB_RECORDING_CLOSE && wb_handle_has_writer(session, live)));
}

static int stage_take(struct wb_subject *subject, int read_fd, const struct wb_loss *loss)
{
    struct wb_store *store = subject->session->store;
    struct wb_live *live = subject->live;
    struct wb_stage *stage = live->stage;
    int r = 0;

    if (!stage) {
        r = wb_stage_begin(&stage, store, &subject->target, subject->fd, subject->actor);
        live->stage = stage;
    }
    if (r == 0)
        r = wb_stage_content(store, &subject->change, &subject->target, stage, read_fd, loss, subject->actor);
    if (r >= 0) {
        subject->staged = true;
        subject->loss = *loss;
    }
    return r;
}

/* Without memory for it, whoever comes next to the file ends the stage. */
static void note_overdue(struct wb_session *session, struct wb_live *live)
{
    struct wb_overdue *overdue = live->overdue ? NULL : g_try_new(struct wb_overdue, 1);

    live->overdue = true;
    if (!overdue)
        return;
    overdue->live = live;
    pthread_mutex_lock(&session->nodes.lock);
    live->refs++;
    overdue->next = session->overdue;
    session->overdue = overdue;
    pthread_mutex_unlock(&session->nodes.lock);
}

int wb_stage_end_subject(struct wb_subject *subject)
{
    struct wb_live *live = subject->live;
    int r;

    if (!live->stage)
        return 0;
    subject->session->dirty = true;
    r = wb_stage_end(subject->session->store, live->stage, &subject->target);
    if (r < 0) {
        note_overdue(subject->session, live);
        return r;
    }
    live->stage = NULL;
    live->overdue = false;
    return 0;
}

static int stage_end_overdue(struct wb_subject *subject)
{
    return subject->live->overdue ? wb_stage_end_subject(subject) : 0;
}

int wb_stage_end_locked(struct wb_session *session, struct wb_live *live)
{
    struct wb_subject subject = {.session = session, .live = live};
    struct wb_handle *handle;
    int r;

    if (!live || !live->stage)
        return 0;
    /* As long as there is a stage somebody has the file open. */
    handle = wb_handle_any(session, live);
    r = handle && fstat(handle->fd, &subject.st) < 0 ? -errno : 0;
    if (!handle)
        subject.st.st_nlink = live->stage->entry.attrs.nlink;
    if (r == 0) {
        if (handle)
            wb_live_mask_nlink(session, live, &subject.st);
        subject_target(&subject);
        subject.target.known = NULL;
        r = wb_stage_end_subject(&subject);
        live->has_undo = subject.target.has_undo;
        wb_live_unref(session, subject.parent);
    }
    wb_handle_unref(session, handle);
    return r;
}

static int end_stage(struct wb_session *session, struct wb_live *live, int fd, bool unless_written)
{
    struct wb_subject subject;
    int r;

    if (!live->stage)
        return 0;
    r = wb_subject_lock(&subject, session, NULL, live, fd);
    if (r < 0)
        return r;
    if (!unless_written || !wb_handle_has_writer(session, live))
        r = wb_stage_end_subject(&subject);
    wb_subject_unlock(&subject);
    return r;
}

int wb_stage_end_now(struct wb_session *session, struct wb_live *live, int fd)
{
    return end_stage(session, live, fd, false);
}

int wb_stage_end_unwritten(struct wb_session *session, struct wb_live *live, int fd)
{
    return end_stage(session, live, fd, true);
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
        struct wb_live *live = list->live;
        bool again;

        next = list->next;
        wb_tree_share(session);
        pthread_mutex_lock(&live->lock);
        again = live->overdue && wb_stage_end_locked(session, live) < 0;
        pthread_mutex_unlock(&live->lock);
        wb_tree_release(session);
        if (again) {
            pthread_mutex_lock(&session->nodes.lock);
            list->next = session->overdue;
            session->overdue = list;
            pthread_mutex_unlock(&session->nodes.lock);
        } else {
            wb_live_unref(session, live);
            g_free(list);
        }
    }
}

/* One that has a stage, referenced, or NULL. */
static struct wb_live *find_staged(struct wb_session *session)
{
    struct wb_live *live = NULL;

    pthread_mutex_lock(&session->nodes.lock);
    for (struct wb_overdue *overdue = session->overdue; overdue && !live; overdue = overdue->next)
        if (overdue->live->stage)
            live = overdue->live;
    for (struct wb_handle *handle = session->nodes.writers; handle && !live; handle = handle->writers_next)
        if (handle->live->stage)
            live = handle->live;
    if (live)
        live->refs++;
    pthread_mutex_unlock(&session->nodes.lock);
    return live;
}

void wb_stages_end_all(struct wb_session *session)
{
    struct wb_live *live;

    /* Ends: each turn takes a stage from its node, whether its end could be written or not. */
    while (wb_stages_may_be(session) && (live = find_staged(session))) {
        pthread_mutex_lock(&live->lock);
        if (wb_stage_end_locked(session, live) < 0) {
            live->stage = wb_stage_free(live->stage);
            live->overdue = false;
        }
        pthread_mutex_unlock(&live->lock);
        wb_live_unref(session, live);
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

void wb_op_flush(struct wb_session *session, fuse_req_t req, struct wb_live *live, struct fuse_file_info *fi)
{
    struct wb_handle *handle = wb_handle_of(fi->fh);

    wb_again_reply(req, handle->writes ? -wb_again_recorded(wb_stage_end_now(session, live, handle->fd)) : 0);
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
    /* CAP_FSETID decides, of which FUSE tells nothing here; root has it, others hardly ever. */
    return fuse_req_ctx(req)->uid != 0;
}

/* With live->lock held: the parent cannot change under a rename, and the reference keeps it. */
static void subject_target(struct wb_subject *subject)
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

    *subject = (struct wb_subject){.session = session, .live = live, .fd = fd, .size_after = -1};
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
    wb_below_compare(live, &subject->st);
    if (session->recording)
        subject_target(subject);
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

/* Whether wayback.conf leaves it out: then all is done that has to be before. 1, 0, or -errno. */
static int is_left_out(struct wb_subject *subject)
{
    struct wb_session *session = subject->session;
    struct wb_live *live = subject->live;
    int r;

    if (wb_recording_of(session, live) != WB_RECORDING_NONE || (!wb_live_is_dir(live) && subject->st.st_nlink > 1))
        return 0;
    r = wb_again_recorded(wb_stage_end_subject(subject));
    if (r == 0)
        r = wb_recording_cover(session, live, &subject->target, subject->fd, &subject->change);
    subject->target.known = NULL;
    return r < 0 ? r : 1;
}

int wb_subject_content(struct wb_subject *subject, int read_fd, const struct wb_loss *loss)
{
    struct wb_store *store = wb_recorder(subject->session);
    int r;

    subject->size_after = (int64_t)loss->size_after;
    if (!store)
        return 0;
    subject->staged = false;
    r = is_left_out(subject);
    if (r != 0) {
        if (r > 0)
            wb_ahead_release(store, subject->target.object);
        return MIN(r, 0);
    }
    r = wb_again_recorded(stage_end_overdue(subject));
    if (r < 0)
        return r;
    if (stage_takes(subject))
        return begun(subject, stage_take(subject, read_fd, loss));
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
    r = is_left_out(subject);
    if (r != 0)
        return MIN(r, 0);
    r = wb_again_recorded(stage_end_overdue(subject));
    if (r < 0)
        return r;
    /* What happens to content belongs to its stage, also where it alters nothing but times. */
    if (op >= WB_OP_WRITE && op <= WB_OP_COPY && stage_takes(subject)) {
        uint64_t size = (uint64_t)subject->st.st_size;
        struct wb_loss loss = {.op = op, .offset = size, .size_after = size};

        return begun(subject, stage_take(subject, subject->fd, &loss));
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
    r = is_left_out(subject);
    if (r != 0)
        return MIN(r, 0);
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
    if (subject->size_after >= 0)
        wb_below_note(subject->live, result < 0 ? WB_SIZE_UNSURE : subject->size_after + 1);
    subject->size_after = -1;
    return result;
}

static bool has_capability(int fd)
{
    return wb_getxattr_fd(fd, "security.capability", NULL, 0) > 0;
}

static int remove_capability(struct wb_subject *subject)
{
    int r = wb_subject_xattr(subject, "security.capability", WB_OP_REMOVEXATTR);

    return r < 0 ? r : wb_subject_end(subject, wb_removexattr_fd(subject->fd, "security.capability"));
}

static int remove_mode_bits(struct wb_subject *subject, mode_t bits)
{
    mode_t mode = subject->st.st_mode & ~bits;
    int r = wb_subject_attrs(subject, WB_OP_CHMOD);

    if (r == 0)
        r = wb_subject_end(subject, wb_chmod_fd(subject->fd, mode & 07777));
    if (r < 0)
        return r;
    subject->st.st_mode = mode;
    return 0;
}

int wb_subject_kill_privileges(struct wb_subject *subject, fuse_req_t by)
{
    struct wb_live *live = subject->live;
    mode_t mode = subject->st.st_mode, killed = 0;
    bool capability;
    int r = 0;

    if (live->no_privileges || !S_ISREG(mode))
        return 0;
    if (by && mode & S_ISUID)
        killed |= S_ISUID;
    if (by && mode & S_ISGID && (mode & S_IXGRP || !wb_caller_in_group(by, subject->st.st_gid)))
        killed |= S_ISGID;
    capability = has_capability(subject->fd);
    if (capability)
        r = remove_capability(subject);
    if (r == 0 && killed)
        r = remove_mode_bits(subject, killed);
    /* execve(2) reads the mode from the kernel's cache, and only the reply to a SETATTR would renew it there. */
    if (killed)
        wb_doubt_attrs(subject->session, live);
    /* Asked once per node, not once per write. */
    live->no_privileges = r == 0 && !(mode & (S_ISUID | S_ISGID)) && !capability;
    return r;
}
