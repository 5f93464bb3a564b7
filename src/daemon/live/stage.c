/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "daemon/live/stage.h"

#include "daemon/keeper/again.h"
#include "daemon/live/ops.h"
#include "daemon/live/recording.h"
#include <errno.h>
#include <glib.h>

/* A file whose version could not be recorded yet; keeps the node. */
struct wb_overdue {
    struct wb_overdue *next;
    struct wb_live *live;
};

bool wb_stage_takes(struct wb_subject *subject)
{
    struct wb_session *session = subject->session;
    struct wb_live *live = subject->live;

    return S_ISREG(subject->st.st_mode) && !subject->target.unborn &&
           (live->stage ||
            (wb_recording_of(session, live) == WB_RECORDING_CLOSE && wb_handle_has_writer(session, live)));
}

int wb_stage_take(struct wb_subject *subject, int read_fd, const struct wb_loss *loss)
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

int wb_stage_end_overdue(struct wb_subject *subject)
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
        wb_subject_target(&subject);
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
