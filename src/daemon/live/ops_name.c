/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Looking names up, and losing and gaining further ones: lookup, link, unlink, rmdir. */
#include "daemon/caller/creating.h"
#include "daemon/core/doubt.h"
#include "daemon/keeper/again.h"
#include "daemon/core/below.h"
#include "daemon/live/change.h"
#include "daemon/live/ops.h"
#include "daemon/live/recording.h"
#include "daemon/live/stage.h"
#include "daemon/lookback/past_later.h"
#include "daemon/past/past.h"
#include "daemon/past/snapdir.h"

#include "base/cleanup.h"
#include "base/io.h"
#include <errno.h>
#include <fcntl.h>
#include <glib.h>
#include <string.h>

static void reply_negative(fuse_req_t req)
{
    struct fuse_entry_param entry = {.entry_timeout = WB_TIMEOUT};

    fuse_reply_entry(req, &entry);
}

/* Creation depends on real entries only: who creates a name that means the past does not find the past in its way. */
static bool is_about_to_be_made(struct wb_session *session, fuse_req_t req, const char *name)
{
    return (wb_past_is_moment(session, name) || wb_snapdir_is(session, name)) && !session->options->read_only &&
           wb_caller_creates(session, req, name);
}

void wb_op_lookup(struct wb_session *session, fuse_req_t req, struct wb_live *dir, const char *name)
{
    struct fuse_entry_param entry;
    struct wb_access access;
    int r;

    if (wb_name_is_hidden(session, dir, name)) {
        reply_negative(req);
        return;
    }
    r = wb_access_get(session, dir, &access);
    if (r == 0) {
        r = wb_entry_fill(session, dir, access.fd, name, &entry, NULL);
        wb_access_put(session, &access);
    }
    if (r == 0)
        fuse_reply_entry(req, &entry);
    /* Not cached: the next caller may want the past of that name. */
    else if (r == -ENOENT && is_about_to_be_made(session, req, name))
        fuse_reply_err(req, ENOENT);
    else if (r == -ENOENT && wb_past_may_be_moment(session, name))
        wb_past_later_lookup(session, req, &dir->node, name);
    else if (r == -ENOENT && wb_snapdir_is(session, name))
        wb_snapdir_lookup(session, req, dir);
    else if (r == -ENOENT)
        reply_negative(req);
    else
        fuse_reply_err(req, -r);
}

/* ---- link ------------------------------------------------------------------------------------ */

static int link_locked(struct wb_subject *subject, struct wb_live *dir, int dir_fd, const char *name)
{
    struct wb_session *session = subject->session;
    struct wb_store *store = wb_recorder(session);
    struct wb_dir to = wb_live_dir(dir, dir_fd);
    char path[32], known[WB_NAME_MAX + 1];
    bool named;
    int r = dir->dead ? -ENOENT : 0;

    if (store && r == 0) {
        pthread_mutex_lock(&session->nodes.lock);
        named = subject->live->name && subject->live->parent == subject->parent;
        if (named)
            g_strlcpy(known, subject->live->name, sizeof(known));
        pthread_mutex_unlock(&session->nodes.lock);
        r = wb_again_recorded(wb_stage_end_subject(subject));
        if (r < 0)
            return r;
        /* What never had a name begins to exist here; nothing of it was recorded so far. */
        r = wb_again_recorded(wb_capture_link(store, &subject->change, &to, name, &subject->target, subject->fd,
                                              named ? known : NULL, subject->actor));
        wb_live_learn(dir, &to);
        session->dirty = true;
    }
    if (r < 0)
        return r;
    r = linkat(AT_FDCWD, wb_fd_path(subject->fd, path), dir_fd, name, AT_SYMLINK_FOLLOW);
    r = wb_subject_end(subject, r < 0 ? -errno : 0);
    if (r == 0) {
        subject->live->unborn = false;
        subject->live->sync_all = true;
    }
    return r;
}

void wb_op_link(struct wb_session *session, fuse_req_t req, struct wb_live *live,
                struct wb_live *dir, const char *name)
{
    struct fuse_entry_param entry;
    struct wb_access from, to = {.fd = -1};
    struct wb_subject subject;
    int r;

    if (wb_name_is_hidden(session, dir, name)) {
        fuse_reply_err(req, EPERM);
        return;
    }
    r = wb_access_get(session, live, &from);
    if (r < 0) {
        fuse_reply_err(req, -r);
        return;
    }
    r = wb_access_get(session, dir, &to);
    if (r == 0)
        r = wb_subject_lock(&subject, session, req, live, from.fd);
    if (r == 0) {
        r = link_locked(&subject, dir, to.fd, name);
        wb_subject_unlock(&subject);
    }
    if (r == 0)
        r = wb_entry_fill_made(session, dir, to.fd, name, &entry, NULL);
    wb_access_put(session, &to);
    wb_access_put(session, &from);
    if (r < 0)
        wb_again_reply(req, -r);
    else
        fuse_reply_entry(req, &entry);
}

/* ---- unlink and rmdir ------------------------------------------------------------------------ */

/* The name is gone: what the nodes must know. With victim->lock held. */
static void forget_name(struct wb_session *session, struct wb_live *dir, struct wb_live *victim,
                        const char *name, bool last, bool buried)
{
    if (buried) {
        dir->lost_names = true;
        session->graves[victim->node.object.ino & 0xff] = 1;
        if (!wb_live_is_dir(victim))
            victim->buried = WB_BURIED_YES;
    }
    wb_live_unbind(session, victim, dir, name, last);
}

/*
 * Whether the entry is left out by wayback.conf, as all of its directory, and has no past: then it is removed like on
 * any disk. 1, 0 or -errno.
 */
static int is_pastless(struct wb_session *session, struct wb_live *dir, int dir_fd, struct wb_object object,
                       const struct stat *st)
{
    struct wb_change change;
    int r;

    if (!session->recording || wb_recording_of(session, dir) != WB_RECORDING_NONE)
        return 0;
    r = wb_recording_cover_dir(session, dir, dir_fd, &change);
    wb_capture_end(&change, 0);
    return r < 0 ? r : wb_recording_is_pastless(session, dir, object, st);
}

static int remove_locked(struct wb_session *session, fuse_req_t req, struct wb_live *dir, int dir_fd,
                         const char *name, bool is_dir, bool pastless)
{
    struct wb_store *store = wb_recorder(session);
    struct wb_dir from = wb_live_dir(dir, dir_fd);
    int r;

    if (!store || pastless)
        return unlinkat(dir_fd, name, is_dir ? AT_REMOVEDIR : 0) < 0 ? -errno : 0;
    r = wb_again_recorded(wb_capture_remove(store, &from, name, is_dir, wb_actor_of(session, req)));
    wb_live_learn(dir, &from);
    session->dirty = true;
    return r;
}

int wb_remove(struct wb_session *session, fuse_req_t req, struct wb_live *dir, const char *name, bool is_dir,
              bool unasked)
{
    struct wb_live *victim = NULL;
    struct wb_object object;
    struct wb_access access;
    struct stat st;
    _cleanup_close_ int pin = -1;
    bool pastless;
    int r;

    r = wb_access_get(session, dir, &access);
    if (r < 0)
        return r;
    r = wb_object_stat(session->store, access.fd, name, &object, NULL, &st);
    if (r == 0 && st.st_dev != session->src_dev)
        r = -EXDEV;
    if (r == -ENOENT && (wb_past_is_moment(session, name) || wb_snapdir_is(session, name)))
        r = -EROFS;
    if (r == 0) {
        victim = wb_live_find(session, object);
        /* Between the look whether it is empty and its removal, nothing may come into it; and afterwards it is dead. */
        if (unasked && is_dir)
            wb_tree_own(session);
        else
            wb_tree_share(session);
        if (victim) {
            pthread_mutex_lock(&victim->lock);
            wb_live_mask_nlink(session, victim, &st);
        }
        r = is_pastless(session, dir, access.fd, object, &st);
        pastless = r > 0;
        /* Without a graveyard a descriptor is all that leads to an inode without a name. */
        if (r >= 0 && victim && (pastless || !session->recording))
            pin = openat(access.fd, name, O_PATH | O_NOFOLLOW | O_CLOEXEC);
        if (r >= 0)
            r = wb_again_recorded(wb_stage_end_locked(session, victim));
        if (r == 0)
            r = remove_locked(session, req, dir, access.fd, name, is_dir, pastless);
        if (r == 0 && pin >= 0)
            wb_handle_pin(session, victim, wb_steal_fd(&pin), fuse_req_ctx(req)->uid);
        if (r == 0 && victim)
            forget_name(session, dir, victim, name, is_dir || st.st_nlink <= 1, session->recording && !pastless);
        /* Nobody can see what becomes of it. */
        if (r == 0 && victim && pastless && !is_dir)
            victim->unborn = true;
        if (r == -EIO)
            wb_doubt_name(session, dir, name);
        if (victim)
            pthread_mutex_unlock(&victim->lock);
        wb_tree_release(session);
    }
    wb_live_unref(session, victim);
    wb_access_put(session, &access);
    return r;
}

void wb_op_remove(struct wb_session *session, fuse_req_t req, struct wb_live *dir, const char *name,
                  bool is_dir)
{
    if (wb_name_is_hidden(session, dir, name))
        fuse_reply_err(req, EPERM);
    else
        wb_again_reply(req, -wb_remove(session, req, dir, name, is_dir, false));
}
