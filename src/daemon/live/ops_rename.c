/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* rename(2) in all its forms. */
#include "daemon/caller/creating.h"
#include "daemon/core/doubt.h"
#include "daemon/keeper/again.h"
#include "daemon/live/change.h"
#include "daemon/live/ops.h"
#include "daemon/live/recording.h"
#include "daemon/live/stage.h"
#include "daemon/past/past.h"
#include "daemon/past/snapdir.h"
#include "daemon/system/report.h"

#include "base/cleanup.h"
#include <errno.h>
#include <fcntl.h>
#include <glib.h>
#include <stdio.h>

struct move {
    struct wb_session *session;
    fuse_req_t req;
    struct wb_live *old_dir, *new_dir;
    const char *old_name, *new_name;
    unsigned flags;
    struct wb_access from, to;
    struct wb_live *moved, *other;      /* the nodes of both names, where known */
    struct wb_object moved_object;
    struct wb_object other_object;
    struct stat moved_st, other_st;
    bool other_exists;
    bool pastless;                      /* nothing of it is recorded (recording.h) */
    int pin;                            /* without a graveyard: leads to what is replaced */
};

/* With nothing real of that name: is there something all the same, which cannot be changed? */
static bool is_past(const struct move *move, struct wb_live *dir, const char *name)
{
    return wb_snapdir_is(move->session, name) ||
           wb_past_exists(move->session, move->req, &dir->node, name);
}

static int look(struct move *move)
{
    struct wb_session *session = move->session;
    int r;

    r = wb_object_stat(session->store, move->from.fd, move->old_name, &move->moved_object, NULL,
                       &move->moved_st);
    if (r < 0)
        return r == -ENOENT && is_past(move, move->old_dir, move->old_name) ? -EROFS : r;
    r = wb_object_stat(session->store, move->to.fd, move->new_name, &move->other_object, NULL,
                       &move->other_st);
    if (r < 0 && r != -ENOENT)
        return r;
    move->other_exists = r == 0;
    /* A caller who creates was shown a free name; any other replaces the past, as the kernel sees it. */
    if (!move->other_exists && is_past(move, move->new_dir, move->new_name) &&
        !wb_caller_creates(session, move->req, move->new_name))
        return -EROFS;
    if (move->moved_st.st_dev != session->src_dev ||
        (move->other_exists && move->other_st.st_dev != session->src_dev))
        return -EXDEV;
    move->moved = wb_live_find(session, move->moved_object);
    if (move->other_exists)
        move->other = wb_live_find(session, move->other_object);
    return 0;
}

/* ---- what wayback.conf leaves out -------------------------------------------------------------- */

static int cover(struct wb_session *session, struct wb_live *dir, int fd)
{
    struct wb_change change;
    int r = wb_recording_cover_dir(session, dir, fd, &change);

    wb_capture_end(&change, 0);
    return r;
}

/* A file that comes to a directory that is left out has a past, and could be taken for one that was born there. */
static int cover_file(struct move *move, struct wb_live *dir, const char *name, struct wb_object object,
                      const struct stat *st)
{
    struct wb_target target = {.object = object, .parent = &dir->dir, .name = name, .nlink = (uint32_t)st->st_nlink};
    _cleanup_close_ int fd = -1;
    struct wb_change change;
    int64_t when;
    int r;

    if (S_ISDIR(st->st_mode) || st->st_nlink > 1)
        return 0;
    fd = openat(dir == move->old_dir ? move->from.fd : move->to.fd, name, O_PATH | O_NOFOLLOW | O_CLOEXEC);
    if (fd < 0)
        return -errno;
    r = wb_again_recorded(wb_capture_unrecorded(move->session->store, &change, &target, fd, &when));
    wb_capture_end(&change, r < 0 ? r : 0);
    return MIN(r, 0);
}

/* Sets move->pastless, and readies what is not. 0 or -errno. With the locks. */
static int look_at_rules(struct move *move)
{
    struct wb_session *session = move->session;
    bool exchange = move->flags & RENAME_EXCHANGE, plain = !(move->flags & (RENAME_EXCHANGE | RENAME_WHITEOUT));
    bool from, to;
    int r = 0;

    move->pastless = false;
    if (!session->recording)
        return 0;
    from = wb_recording_of(session, move->old_dir) == WB_RECORDING_NONE;
    to = wb_recording_of(session, move->new_dir) == WB_RECORDING_NONE;
    if (from && to && plain) {
        r = cover(session, move->old_dir, move->from.fd);
        if (r == 0)
            r = cover(session, move->new_dir, move->to.fd);
        if (r < 0)
            return r;
        /* Where it goes, it must not have been born in time to be seen, either. */
        move->pastless = wb_recording_is_pastless(session, move->old_dir, move->moved_object, &move->moved_st) &&
                         wb_recording_is_pastless(session, move->new_dir, move->moved_object, &move->moved_st) &&
                         (!move->other_exists ||
                          wb_recording_is_pastless(session, move->new_dir, move->other_object, &move->other_st));
    }
    if (!move->pastless && to)
        r = cover_file(move, move->old_dir, move->old_name, move->moved_object, &move->moved_st);
    if (r == 0 && exchange && from)
        r = cover_file(move, move->new_dir, move->new_name, move->other_object, &move->other_st);
    return r;
}

static int make(struct move *move, fuse_req_t req)
{
    struct wb_session *session = move->session;
    struct wb_store *store = wb_recorder(session);
    struct wb_dir from, to, *target = &to;
    struct wb_dir *moved_dir = NULL, *other_dir = NULL;
    int r;

    if (!store || move->pastless)
        return renameat2(move->from.fd, move->old_name, move->to.fd, move->new_name, move->flags) < 0
                   ? -errno
                   : 0;
    from = wb_live_dir(move->old_dir, move->from.fd);
    to = wb_live_dir(move->new_dir, move->to.fd);
    if (move->old_dir == move->new_dir)
        target = &from;
    if (S_ISDIR(move->moved_st.st_mode) && move->moved)
        moved_dir = &move->moved->dir;
    if ((move->flags & RENAME_EXCHANGE) && S_ISDIR(move->other_st.st_mode) && move->other)
        other_dir = &move->other->dir;
    r = wb_capture_rename(store, &from, move->old_name, target, move->new_name, move->flags, moved_dir, other_dir,
                          wb_actor_of(session, req));
    wb_again_made(session, from.unrecorded, r);
    wb_live_learn(move->old_dir, &from);
    wb_live_learn(move->new_dir, target);
    session->dirty = true;
    return r;
}

/* The names are where they are now: the nodes follow. */
static void follow(struct move *move)
{
    struct wb_session *session = move->session;
    bool exchange = move->flags & RENAME_EXCHANGE, recorded = session->recording && !move->pastless;

    if (move->other && exchange) {
        wb_live_bind(session, move->other, move->old_dir, move->old_name);
    } else if (move->other) {
        bool is_dir = S_ISDIR(move->other_st.st_mode);

        if (move->pin >= 0)
            wb_handle_pin(session, move->other, wb_steal_fd(&move->pin), fuse_req_ctx(move->req)->uid);
        if (recorded && !is_dir)
            move->other->buried = WB_BURIED_YES;
        if (move->pastless && !is_dir)
            move->other->unborn = true;
        wb_live_unbind(session, move->other, move->new_dir, move->new_name,
                       is_dir || move->other_st.st_nlink <= 1);
    }
    if (move->other_exists && !exchange && recorded) {
        move->new_dir->lost_names = true;
        session->graves[move->other_object.ino & 0xff] = 1;
    }
    if (move->moved)
        wb_live_bind(session, move->moved, move->new_dir, move->new_name);
    wb_recording_renamed(session, move->moved);
    wb_recording_renamed(session, exchange ? move->other : NULL);
    if (move->old_dir != move->new_dir) {
        if (move->moved)
            move->moved->sync_all = true;
        if (move->other)
            move->other->sync_all = true;
        move->old_dir->sync_all = move->new_dir->sync_all = true;
    }
}

/* The whiteout is a new inode; the rename was made as the daemon. */
static void own_whiteout(struct move *move, fuse_req_t req)
{
    const struct fuse_ctx *ctx = fuse_req_ctx(req);
    struct stat dir;

    if (!move->session->is_root || (ctx->uid == 0 && ctx->gid == 0) ||
        fstat(move->from.fd, &dir) < 0)
        return;
    if (fchownat(move->from.fd, move->old_name, ctx->uid,
                 dir.st_mode & S_ISGID ? (gid_t)-1 : ctx->gid, AT_SYMLINK_NOFOLLOW) < 0)
        wb_report("%s: the whiteout created by a rename is owned by root: %s", move->old_name,
                  g_strerror(errno));
}

/* Made in part, and taken back or not; by a device that fails, perhaps even whole. */
static void doubt(struct move *move, int r)
{
    struct wb_session *session = move->session;

    if (r == -ENOTEMPTY || r == -EEXIST || r == -ENOTDIR || r == -EISDIR)
        return;
    wb_doubt_attrs(session, move->moved);
    wb_doubt_attrs(session, move->other);
    wb_doubt_name(session, move->old_dir, move->old_name);
    wb_doubt_name(session, move->new_dir, move->new_name);
}

static int rename_found(struct move *move, fuse_req_t req)
{
    struct wb_session *session = move->session;
    bool dirs;
    int r;

    r = look(move);
    if (r < 0)
        return r;
    /* Two names of one inode: rename(2) does nothing. */
    if (move->other_exists && wb_object_equal(move->moved_object, move->other_object))
        return 0;
    /* While a directory moves, nobody may be walking from a node up to the root. */
    dirs = S_ISDIR(move->moved_st.st_mode) ||
           ((move->flags & RENAME_EXCHANGE) && S_ISDIR(move->other_st.st_mode));
    if (dirs)
        wb_tree_own(session);
    else
        wb_tree_share(session);
    wb_live_lock_two(move->moved, move->other);
    if (move->other)
        wb_live_mask_nlink(session, move->other, &move->other_st);
    if (move->moved)
        wb_live_mask_nlink(session, move->moved, &move->moved_st);
    r = wb_again_recorded(wb_stage_end_locked(session, move->moved));
    if (r == 0)
        r = wb_again_recorded(wb_stage_end_locked(session, move->other));
    if (r == 0)
        r = look_at_rules(move);
    if (r == 0 && move->other && (move->pastless || !session->recording) && !(move->flags & RENAME_EXCHANGE))
        move->pin = openat(move->to.fd, move->new_name, O_PATH | O_NOFOLLOW | O_CLOEXEC);
    /* Removed, and the kernel does not know it yet (vrm). */
    if (r == 0 && move->new_dir->dead)
        r = -ENOENT;
    if (r == 0)
        r = make(move, req);
    if (r == 0 && (move->flags & RENAME_WHITEOUT))
        own_whiteout(move, req);
    if (r == 0)
        follow(move);
    else if (move->other)
        move->other->buried = WB_BURIED_UNKNOWN; /* its link in the graveyard is made before the rename */
    wb_live_unlock_two(move->moved, move->other);
    wb_tree_release(session);
    if (r < 0)
        doubt(move, r);
    return r;
}

void wb_op_rename(struct wb_session *session, fuse_req_t req, struct wb_live *old_dir,
                  const char *old_name, struct wb_live *new_dir, const char *new_name,
                  unsigned flags)
{
    struct move move = {
        .session = session,
        .req = req,
        .old_dir = old_dir,
        .new_dir = new_dir,
        .old_name = old_name,
        .new_name = new_name,
        .flags = flags,
        .from = {.fd = -1},
        .to = {.fd = -1},
        .pin = -1,
    };
    int r;

    if (wb_name_is_hidden(session, old_dir, old_name) ||
        wb_name_is_hidden(session, new_dir, new_name)) {
        fuse_reply_err(req, EPERM);
        return;
    }
    r = wb_access_get(session, old_dir, &move.from);
    if (r == 0)
        r = wb_access_get(session, new_dir, &move.to);
    if (r == 0)
        r = rename_found(&move, req);
    wb_close_fd(&move.pin);
    wb_live_unref(session, move.moved);
    wb_live_unref(session, move.other);
    wb_access_put(session, &move.from);
    wb_access_put(session, &move.to);
    wb_again_reply(req, -r);
}
