/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Looking names up, and losing and gaining further ones: lookup, link, unlink, rmdir. */
#include "daemon/caller/creating.h"

#include "base/cleanup.h"
#include "base/io.h"
#include "daemon/caller/creds.h"
#include "daemon/core/below.h"
#include "daemon/core/kcache_invalidate.h"
#include "daemon/keeper/enospc_retry.h"
#include "daemon/live/io.h"
#include "daemon/live/mutation.h"
#include "daemon/live/ops.h"
#include "daemon/live/recording.h"
#include "daemon/live/stage.h"
#include "daemon/lookback/past_later.h"
#include "daemon/past/past.h"
#include "daemon/past/snapdir.h"
#include "daemon/system/report.h"
#include <errno.h>
#include <fcntl.h>
#include <glib.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

static void reply_negative(const struct wb_session *session, fuse_req_t req)
{
    struct fuse_entry_param entry = {.entry_timeout = wb_kcache_timeout(session)};

    fuse_reply_entry(req, &entry);
}

/* Creation depends on real entries only: who creates a name that means the past does not find the past in its way. */
static bool is_about_to_be_made(struct wb_session *session, fuse_req_t req, const char *name)
{
    return (wb_past_is_moment(session, name) || wb_snapdir_is(session, name)) && !session->options->read_only &&
           wb_caller_creates(session, req, name);
}

void wb_op_lookup(struct wb_session *session, fuse_req_t req, struct wb_inode *dir, const char *name)
{
    struct fuse_entry_param entry;
    struct wb_access access;
    int r;

    if (wb_name_is_hidden(session, dir, name)) {
        reply_negative(session, req);
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
        reply_negative(session, req);
    else
        fuse_reply_err(req, -r);
}

/* ---- link ------------------------------------------------------------------------------------ */

static int link_locked(struct wb_mutation *mutation, struct wb_inode *dir, int dir_fd, const char *name)
{
    struct wb_session *session = mutation->session;
    struct wb_store *store = wb_recorder(session);
    struct wb_dir to = wb_inode_dir(dir, dir_fd);
    char path[32], known[WB_NAME_MAX + 1];
    bool named;
    int r = dir->dead ? -ENOENT : 0;

    if (store && r == 0) {
        pthread_mutex_lock(&session->nodes.lock);
        named = mutation->inode->name && mutation->inode->parent == mutation->parent;
        if (named)
            g_strlcpy(known, mutation->inode->name, sizeof(known));
        pthread_mutex_unlock(&session->nodes.lock);
        r = wb_enospc_retry_recorded(wb_stage_end_mutation(mutation));
        if (r < 0)
            return r;
        /* What never had a name begins to exist here; nothing of it was recorded so far. */
        r = wb_enospc_retry_recorded(wb_capture_link(store, &mutation->change, &to, name, &mutation->target,
                                                     mutation->fd, named ? known : NULL, mutation->actor));
        wb_inode_learn(dir, &to);
        session->dirty = true;
    }
    if (r < 0)
        return r;
    r = linkat(AT_FDCWD, wb_fd_path(mutation->fd, path), dir_fd, name, AT_SYMLINK_FOLLOW);
    r = wb_mutation_end(mutation, r < 0 ? -errno : 0);
    if (r == 0) {
        mutation->inode->unborn = false;
        mutation->inode->sync_all = true;
    }
    return r;
}

void wb_op_link(struct wb_session *session, fuse_req_t req, struct wb_inode *inode, struct wb_inode *dir,
                const char *name)
{
    struct fuse_entry_param entry;
    struct wb_access from, to = {.fd = -1};
    struct wb_mutation mutation;
    int r;

    if (wb_name_is_hidden(session, dir, name)) {
        fuse_reply_err(req, EPERM);
        return;
    }
    r = wb_access_get(session, inode, &from);
    if (r < 0) {
        fuse_reply_err(req, -r);
        return;
    }
    r = wb_access_get(session, dir, &to);
    if (r == 0)
        r = wb_mutation_lock(&mutation, session, req, inode, from.fd);
    if (r == 0) {
        r = link_locked(&mutation, dir, to.fd, name);
        wb_mutation_unlock(&mutation);
    }
    if (r == 0) {
        wb_kcache_invalidate_attrs(session, dir);
        r = wb_entry_fill_made(session, dir, to.fd, name, &entry, NULL);
    }
    wb_access_put(session, &to);
    wb_access_put(session, &from);
    if (r < 0)
        wb_enospc_retry_reply(req, -r);
    else
        fuse_reply_entry(req, &entry);
}

/* ---- unlink and rmdir ------------------------------------------------------------------------ */

/* The name is gone: what the nodes must know. With victim->lock held. */
static void forget_name(struct wb_session *session, struct wb_inode *dir, struct wb_inode *victim, const char *name,
                        bool last, bool buried)
{
    if (buried) {
        dir->lost_names = true;
        session->graves[victim->node.object.ino & 0xff] = 1;
        if (!wb_inode_is_dir(victim))
            victim->buried = WB_BURIED_YES;
    }
    wb_inode_unbind(session, victim, dir, name, last);
}

/*
 * Whether the entry is left out by wayback.conf, as all of its directory, and has no past: then it is removed like on
 * any disk. 1, 0 or -errno.
 */
static int is_pastless(struct wb_session *session, struct wb_inode *dir, int dir_fd, struct wb_object object,
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

static int remove_locked(struct wb_session *session, fuse_req_t req, struct wb_inode *dir, int dir_fd, const char *name,
                         bool is_dir, bool pastless)
{
    struct wb_store *store = wb_recorder(session);
    struct wb_dir from = wb_inode_dir(dir, dir_fd);
    int r;

    if (!store || pastless)
        return unlinkat(dir_fd, name, is_dir ? AT_REMOVEDIR : 0) < 0 ? -errno : 0;
    r = wb_enospc_retry_recorded(wb_capture_remove(store, &from, name, is_dir, wb_actor_of(session, req)));
    wb_inode_learn(dir, &from);
    session->dirty = true;
    return r;
}

int wb_remove(struct wb_session *session, fuse_req_t req, struct wb_inode *dir, const char *name, bool is_dir,
              bool unasked)
{
    struct wb_inode *victim = NULL;
    struct wb_object object;
    struct wb_access access;
    struct stat st;
    struct wb_pin pin = WB_PIN_NONE;
    uid_t uid = fuse_req_ctx(req)->uid;
    bool pastless;
    int r;

    wb_io_make_room(session);
    r = wb_access_get(session, dir, &access);
    if (r < 0)
        return r;
    r = wb_object_stat(session->store, access.fd, name, &object, NULL, &st);
    if (r == 0 && st.st_dev != session->src_dev)
        r = -EXDEV;
    if (r == -ENOENT && (wb_past_is_moment(session, name) || wb_snapdir_is(session, name)))
        r = -EROFS;
    if (r == 0) {
        victim = wb_inode_find(session, object);
        /* Between the look whether it is empty and its removal, nothing may come into it; and afterwards it is dead. */
        if (unasked && is_dir)
            wb_ns_write_lock(session);
        else
            wb_ns_read_lock(session);
        if (victim) {
            pthread_mutex_lock(&victim->lock);
            wb_inode_mask_nlink(session, victim, &st);
        }
        r = is_pastless(session, dir, access.fd, object, &st);
        pastless = r > 0;
        if (r >= 0 && victim)
            r = wb_io_pin_begin(session, uid, victim, dir, access.fd, name, st.st_nlink,
                                session->recording && !pastless, &pin);
        if (r >= 0)
            r = wb_enospc_retry_recorded(wb_stage_end_locked(session, victim));
        if (r == 0)
            r = remove_locked(session, req, dir, access.fd, name, is_dir, pastless);
        if (r == 0 && victim)
            forget_name(session, dir, victim, name, is_dir || st.st_nlink <= 1, session->recording && !pastless);
        if (victim)
            wb_io_pin_end(session, uid, victim, &pin, r == 0);
        /* Nobody can see what becomes of it. */
        if (r == 0 && victim && pastless && !is_dir)
            victim->unborn = true;
        if (r == -EIO)
            wb_kcache_invalidate_name(session, dir, name);
        if (victim)
            pthread_mutex_unlock(&victim->lock);
        wb_ns_unlock(session);
    }
    wb_inode_unref(session, victim);
    wb_access_put(session, &access);
    return r;
}

void wb_op_remove(struct wb_session *session, fuse_req_t req, struct wb_inode *dir, const char *name, bool is_dir)
{
    int r = wb_name_is_hidden(session, dir, name) ? -EPERM : wb_remove(session, req, dir, name, is_dir, false);

    if (r == 0)
        wb_kcache_invalidate_attrs(session, dir);
    wb_enospc_retry_reply(req, -r);
}

/* New inodes: create, mkdir, mknod, symlink and O_TMPFILE, made as the caller would have made them. */

struct birth {
    struct wb_session *session;
    struct wb_inode *dir;
    struct wb_access access;
    struct wb_dir record; /* `dir` as the capture floor sees it */
    struct wb_change change;
    struct wb_creds creds;
};

static int record_birth(struct birth *birth, fuse_req_t req, const char *name, enum wb_op op)
{
    struct wb_session *session = birth->session;
    int r;

    if (wb_recording_of(session, birth->dir) == WB_RECORDING_NONE)
        return wb_recording_cover_dir(session, birth->dir, birth->access.fd, &birth->change);
    birth->record = wb_inode_dir(birth->dir, birth->access.fd);
    r = wb_enospc_retry_recorded(
        wb_capture_birth(session->store, &birth->change, &birth->record, name, op, wb_actor_of(session, req)));
    wb_inode_learn(birth->dir, &birth->record);
    return r;
}

/* After this the caller makes the one system call, and ends. */
static int birth_begin(struct birth *birth, struct wb_session *session, fuse_req_t req, struct wb_inode *dir,
                       const char *name, mode_t mode, enum wb_op op)
{
    int r;

    *birth = (struct birth){.session = session, .dir = dir, .change = {.slot = -1}};
    if (name && wb_name_is_hidden(session, dir, name))
        return -EPERM;
    r = wb_access_get(session, dir, &birth->access);
    if (r < 0)
        return r;
    wb_ns_read_lock(session);
    /* Removed, and the kernel does not know it yet (vrm). What has no name (tmpfile) does not need it. */
    if (name && dir->dead)
        r = -ENOENT;
    if (r == 0 && session->recording && name) {
        r = record_birth(birth, req, name, op);
        session->dirty = true;
    }
    if (r >= 0) {
        r = wb_creds_enter(&birth->creds, session, req, mode);
        if (r < 0 && session->recording && name)
            wb_capture_end(&birth->change, r);
    }
    if (r < 0) {
        wb_ns_unlock(session);
        wb_access_put(session, &birth->access);
        return r;
    }
    return 0;
}

/* `result` of the system call. On success the descriptor of the directory is still there, for
 * the caller to look the new inode up through, and to put. */
static int birth_end(struct birth *birth, int result, bool named)
{
    wb_creds_leave(&birth->creds);
    if (birth->session->recording && named)
        wb_capture_end(&birth->change, result);
    wb_ns_unlock(birth->session);
    if (result < 0)
        wb_access_put(birth->session, &birth->access);
    else if (named)
        wb_kcache_invalidate_attrs(birth->session, birth->dir);
    return result;
}

static void birth_reply(struct birth *birth, fuse_req_t req, const char *name, int r)
{
    struct fuse_entry_param entry;

    if (r == 0) {
        r = wb_entry_fill_made(birth->session, birth->dir, birth->access.fd, name, &entry, NULL);
        wb_access_put(birth->session, &birth->access);
    }
    if (r < 0)
        wb_enospc_retry_reply(req, -r);
    else
        fuse_reply_entry(req, &entry);
}

void wb_op_mknod(struct wb_session *session, fuse_req_t req, struct wb_inode *dir, const char *name, mode_t mode,
                 dev_t rdev)
{
    enum wb_op op = S_ISREG(mode) ? WB_OP_CREATE : WB_OP_MKNOD;
    struct birth birth;
    int r = birth_begin(&birth, session, req, dir, name, mode, op);

    if (r == 0) {
        r = mknodat(birth.access.fd, name, mode, rdev) < 0 ? -errno : 0;
        r = birth_end(&birth, r, true);
    }
    birth_reply(&birth, req, name, r);
}

void wb_op_mkdir(struct wb_session *session, fuse_req_t req, struct wb_inode *dir, const char *name, mode_t mode)
{
    struct birth birth;
    int r = birth_begin(&birth, session, req, dir, name, S_IFDIR | mode, WB_OP_MKDIR);

    if (r == 0) {
        r = mkdirat(birth.access.fd, name, mode) < 0 ? -errno : 0;
        r = birth_end(&birth, r, true);
    }
    birth_reply(&birth, req, name, r);
}

void wb_op_symlink(struct wb_session *session, fuse_req_t req, const char *target, struct wb_inode *dir,
                   const char *name)
{
    struct birth birth;
    int r = birth_begin(&birth, session, req, dir, name, S_IFLNK, WB_OP_SYMLINK);

    if (r == 0) {
        r = symlinkat(target, birth.access.fd, name) < 0 ? -errno : 0;
        r = birth_end(&birth, r, true);
    }
    birth_reply(&birth, req, name, r);
}

/* The new inode becomes a node and an open handle of it. */
static void reply_created(struct birth *birth, fuse_req_t req, const char *name, int fd,
                          struct fuse_file_info *fi)
{
    struct wb_session *session = birth->session;
    struct fuse_entry_param entry;
    struct wb_inode *inode = NULL;
    int r;

    if (name)
        r = wb_entry_fill_made(session, birth->dir, birth->access.fd, name, &entry, &inode);
    else
        r = wb_entry_fill_nameless(session, fd, &entry, &inode);
    wb_access_put(session, &birth->access);
    if (r == 0) {
        inode->unborn = !name;
        /* Saves the first write a look for them. */
        inode->no_privileges = !(entry.attr.st_mode & (S_ISUID | S_ISGID));
    }
    if (r == 0) {
        r = session->no_open ? wb_io_keep(session, req, inode, fd, fi)
                             : wb_handle_opened(session, req, inode, fd, true, fi);
        if (r == 0 && !session->no_open)
            atomic_store(&wb_handle_of_request(fi)->changed, true);
        if (r < 0) {
            wb_inode_forget(session, inode, 1);
            if (name)
                wb_kcache_invalidate_name(session, birth->dir, name);
        }
    } else {
        close(fd);
    }
    wb_inode_unref(session, inode);
    if (r < 0)
        wb_enospc_retry_reply(req, -r);
    else
        fuse_reply_create(req, &entry, fi);
}

/* Always readable as well, whatever the mode: before-images will be read through it. */
static int creation_flags(const struct fuse_file_info *fi)
{
    int flags = (fi->flags & O_ACCMODE) == O_RDONLY ? O_RDONLY : O_RDWR;

    return flags | O_CLOEXEC;
}

void wb_op_create(struct wb_session *session, fuse_req_t req, struct wb_inode *dir, const char *name, mode_t mode,
                  struct fuse_file_info *fi)
{
    struct birth birth;
    int r, fd = -1;

    r = wb_io_make_room(session);
    if (r == 0)
        r = wb_shares_room(&session->shares, WB_SHARE_FDS, fuse_req_ctx(req)->uid, 1);
    if (r == 0)
        r = birth_begin(&birth, session, req, dir, name, S_IFREG | mode, WB_OP_CREATE);
    if (r == 0) {
        /* The kernel has looked: there is no such name. O_EXCL holds us to what was recorded. */
        fd = openat(birth.access.fd, name, creation_flags(fi) | O_CREAT | O_EXCL | O_NOFOLLOW,
                    mode & 07777);
        r = birth_end(&birth, fd < 0 ? -errno : 0, true);
    }
    if (r < 0)
        wb_enospc_retry_reply(req, -r);
    else
        reply_created(&birth, req, name, fd, fi);
}

void wb_op_tmpfile(struct wb_session *session, fuse_req_t req, struct wb_inode *dir, mode_t mode,
                   struct fuse_file_info *fi)
{
    struct birth birth;
    int r, fd = -1;

    r = wb_io_make_room(session);
    if (r == 0)
        r = wb_shares_room(&session->shares, WB_SHARE_FDS, fuse_req_ctx(req)->uid, 1);
    if (r == 0)
        r = birth_begin(&birth, session, req, dir, NULL, S_IFREG | mode, WB_OP_CREATE);
    if (r == 0) {
        fd = openat(birth.access.fd, ".",
                    O_RDWR | O_TMPFILE | O_CLOEXEC | (fi->flags & O_EXCL), mode & 07777);
        r = birth_end(&birth, fd < 0 ? -errno : 0, false);
    }
    if (r < 0)
        wb_enospc_retry_reply(req, -r);
    else
        reply_created(&birth, req, NULL, fd, fi);
}

/* rename(2) in all its forms. */

struct move {
    struct wb_session *session;
    fuse_req_t req;
    struct wb_inode *old_dir, *new_dir;
    const char *old_name, *new_name;
    unsigned flags;
    struct wb_access from, to;
    struct wb_inode *moved, *other; /* the nodes of both names, where known */
    struct wb_object moved_object;
    struct wb_object other_object;
    struct stat moved_st, other_st;
    bool other_exists;
    bool pastless;                      /* nothing of it is recorded (recording.h) */
    struct wb_pin pin;                  /* leads to what is replaced */
};

/* With nothing real of that name: is there something all the same, which cannot be changed? */
static bool is_past(const struct move *move, struct wb_inode *dir, const char *name)
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
    move->moved = wb_inode_find(session, move->moved_object);
    if (move->other_exists)
        move->other = wb_inode_find(session, move->other_object);
    return 0;
}

/* ---- what wayback.conf leaves out -------------------------------------------------------------- */

static int cover(struct wb_session *session, struct wb_inode *dir, int fd)
{
    struct wb_change change;
    int r = wb_recording_cover_dir(session, dir, fd, &change);

    wb_capture_end(&change, 0);
    return r;
}

/* A file that comes to a directory that is left out has a past, and could be taken for one that was born there. */
static int cover_file(struct move *move, struct wb_inode *dir, const char *name, struct wb_object object,
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
    r = wb_enospc_retry_recorded(wb_capture_unrecorded(move->session->store, &change, &target, fd, &when));
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
    from = wb_inode_dir(move->old_dir, move->from.fd);
    to = wb_inode_dir(move->new_dir, move->to.fd);
    if (move->old_dir == move->new_dir)
        target = &from;
    if (S_ISDIR(move->moved_st.st_mode) && move->moved)
        moved_dir = &move->moved->dir;
    if ((move->flags & RENAME_EXCHANGE) && S_ISDIR(move->other_st.st_mode) && move->other)
        other_dir = &move->other->dir;
    r = wb_capture_rename(store, &from, move->old_name, target, move->new_name, move->flags, moved_dir, other_dir,
                          wb_actor_of(session, req));
    wb_enospc_retry_made(session, from.unrecorded, r);
    wb_inode_learn(move->old_dir, &from);
    wb_inode_learn(move->new_dir, target);
    session->dirty = true;
    return r;
}

/* The names are where they are now: the nodes follow. */
static void follow(struct move *move)
{
    struct wb_session *session = move->session;
    bool exchange = move->flags & RENAME_EXCHANGE, recorded = session->recording && !move->pastless;

    if (move->other && exchange) {
        wb_inode_bind(session, move->other, move->old_dir, move->old_name, move->new_dir, move->new_name);
    } else if (move->other) {
        bool is_dir = S_ISDIR(move->other_st.st_mode);

        if (recorded && !is_dir)
            move->other->buried = WB_BURIED_YES;
        if (move->pastless && !is_dir)
            move->other->unborn = true;
        wb_inode_unbind(session, move->other, move->new_dir, move->new_name, is_dir || move->other_st.st_nlink <= 1);
        wb_io_pin_end(session, fuse_req_ctx(move->req)->uid, move->other, &move->pin, true);
    }
    if (move->other_exists && !exchange && recorded) {
        move->new_dir->lost_names = true;
        session->graves[move->other_object.ino & 0xff] = 1;
    }
    if (move->moved)
        wb_inode_bind(session, move->moved, move->new_dir, move->new_name, move->old_dir, move->old_name);
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
        wb_log_msg("%s: the whiteout created by a rename is owned by root: %s", move->old_name, g_strerror(errno));
}

/* Made in part, and taken back or not; by a device that fails, perhaps even whole. */
static void doubt(struct move *move, int r)
{
    struct wb_session *session = move->session;

    if (r == -ENOTEMPTY || r == -EEXIST || r == -ENOTDIR || r == -EISDIR)
        return;
    wb_kcache_invalidate_attrs(session, move->moved);
    wb_kcache_invalidate_attrs(session, move->other);
    wb_kcache_invalidate_name(session, move->old_dir, move->old_name);
    wb_kcache_invalidate_name(session, move->new_dir, move->new_name);
}

static void invalidate(struct move *move)
{
    struct wb_session *session = move->session;

    wb_kcache_invalidate_attrs(session, move->moved);
    wb_kcache_invalidate_attrs(session, move->other);
    wb_kcache_invalidate_attrs(session, move->old_dir);
    if (move->new_dir != move->old_dir)
        wb_kcache_invalidate_attrs(session, move->new_dir);
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
        wb_ns_write_lock(session);
    else
        wb_ns_read_lock(session);
    wb_inode_lock_two(move->moved, move->other);
    if (move->other)
        wb_inode_mask_nlink(session, move->other, &move->other_st);
    if (move->moved)
        wb_inode_mask_nlink(session, move->moved, &move->moved_st);
    r = wb_enospc_retry_recorded(wb_stage_end_locked(session, move->moved));
    if (r == 0)
        r = wb_enospc_retry_recorded(wb_stage_end_locked(session, move->other));
    if (r == 0)
        r = look_at_rules(move);
    if (r == 0 && move->other && !(move->flags & RENAME_EXCHANGE))
        r = wb_io_pin_begin(session, fuse_req_ctx(req)->uid, move->other, move->new_dir, move->to.fd, move->new_name,
                            move->other_st.st_nlink, session->recording && !move->pastless, &move->pin);
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
    wb_inode_unlock_two(move->moved, move->other);
    wb_ns_unlock(session);
    if (r < 0)
        doubt(move, r);
    else
        invalidate(move);
    return r;
}

void wb_op_rename(struct wb_session *session, fuse_req_t req, struct wb_inode *old_dir, const char *old_name,
                  struct wb_inode *new_dir, const char *new_name, unsigned flags)
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
        .pin = WB_PIN_NONE,
    };
    int r;

    if (wb_name_is_hidden(session, old_dir, old_name) ||
        wb_name_is_hidden(session, new_dir, new_name)) {
        fuse_reply_err(req, EPERM);
        return;
    }
    wb_io_make_room(session);
    r = wb_access_get(session, old_dir, &move.from);
    if (r == 0)
        r = wb_access_get(session, new_dir, &move.to);
    if (r == 0)
        r = rename_found(&move, req);
    if (move.other)
        wb_io_pin_end(session, fuse_req_ctx(req)->uid, move.other, &move.pin, false);
    wb_inode_unref(session, move.moved);
    wb_inode_unref(session, move.other);
    wb_access_put(session, &move.from);
    wb_access_put(session, &move.to);
    wb_enospc_retry_reply(req, -r);
}
