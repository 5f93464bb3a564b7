/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* New inodes: create, mkdir, mknod, symlink and O_TMPFILE, made as the caller would have made them. */
#include "daemon/keeper/again.h"
#include "daemon/caller/creds.h"
#include "daemon/live/change.h"
#include "daemon/core/doubt.h"
#include "daemon/live/ops.h"
#include "daemon/live/recording.h"

#include "base/cleanup.h"
#include <errno.h>
#include <fcntl.h>
#include <unistd.h>

struct birth {
    struct wb_session *session;
    struct wb_live *dir;
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
    birth->record = wb_live_dir(birth->dir, birth->access.fd);
    r = wb_again_recorded(wb_capture_birth(session->store, &birth->change, &birth->record, name, op,
                                           wb_actor_of(session, req)));
    wb_live_learn(birth->dir, &birth->record);
    return r;
}

/* After this the caller makes the one system call, and ends. */
static int birth_begin(struct birth *birth, struct wb_session *session, fuse_req_t req,
                       struct wb_live *dir, const char *name, mode_t mode, enum wb_op op)
{
    int r;

    *birth = (struct birth){.session = session, .dir = dir, .change = {.slot = -1}};
    if (name && wb_name_is_hidden(session, dir, name))
        return -EPERM;
    r = wb_access_get(session, dir, &birth->access);
    if (r < 0)
        return r;
    wb_tree_share(session);
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
        wb_tree_release(session);
        wb_access_put(session, &birth->access);
        return r;
    }
    return 0;
}

/* `result` of the system call. On success the descriptor of the directory is still there, for
 * the caller to look the new inode up through, and to put. */
static int birth_end(struct birth *birth, int result, bool recorded)
{
    wb_creds_leave(&birth->creds);
    if (birth->session->recording && recorded)
        wb_capture_end(&birth->change, result);
    wb_tree_release(birth->session);
    if (result < 0)
        wb_access_put(birth->session, &birth->access);
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
        wb_again_reply(req, -r);
    else
        fuse_reply_entry(req, &entry);
}

void wb_op_mknod(struct wb_session *session, fuse_req_t req, struct wb_live *dir, const char *name,
                 mode_t mode, dev_t rdev)
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

void wb_op_mkdir(struct wb_session *session, fuse_req_t req, struct wb_live *dir, const char *name,
                 mode_t mode)
{
    struct birth birth;
    int r = birth_begin(&birth, session, req, dir, name, S_IFDIR | mode, WB_OP_MKDIR);

    if (r == 0) {
        r = mkdirat(birth.access.fd, name, mode) < 0 ? -errno : 0;
        r = birth_end(&birth, r, true);
    }
    birth_reply(&birth, req, name, r);
}

void wb_op_symlink(struct wb_session *session, fuse_req_t req, const char *target,
                   struct wb_live *dir, const char *name)
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
    struct wb_live *live = NULL;
    int r;

    if (name)
        r = wb_entry_fill_made(session, birth->dir, birth->access.fd, name, &entry, &live);
    else
        r = wb_entry_fill_nameless(session, fd, &entry, &live);
    wb_access_put(session, &birth->access);
    if (r == 0) {
        live->unborn = !name;
        /* Saves the first write a look for them. */
        live->no_privileges = !(entry.attr.st_mode & (S_ISUID | S_ISGID));
    }
    if (r == 0) {
        r = wb_handle_opened(session, req, live, fd, true, fi);
        if (r < 0) {
            wb_live_forget(session, live, 1);
            if (name)
                wb_doubt_name(session, birth->dir, name);
        }
    } else {
        close(fd);
    }
    wb_live_unref(session, live);
    if (r < 0)
        wb_again_reply(req, -r);
    else
        fuse_reply_create(req, &entry, fi);
}

/* Always readable as well, whatever the mode: before-images will be read through it. */
static int creation_flags(const struct fuse_file_info *fi)
{
    int flags = (fi->flags & O_ACCMODE) == O_RDONLY ? O_RDONLY : O_RDWR;

    return flags | O_CLOEXEC;
}

void wb_op_create(struct wb_session *session, fuse_req_t req, struct wb_live *dir, const char *name,
                  mode_t mode, struct fuse_file_info *fi)
{
    struct birth birth;
    int r, fd = -1;

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
        wb_again_reply(req, -r);
    else
        reply_created(&birth, req, name, fd, fi);
}

void wb_op_tmpfile(struct wb_session *session, fuse_req_t req, struct wb_live *dir, mode_t mode,
                   struct fuse_file_info *fi)
{
    struct birth birth;
    int r, fd = -1;

    r = wb_shares_room(&session->shares, WB_SHARE_FDS, fuse_req_ctx(req)->uid, 1);
    if (r == 0)
        r = birth_begin(&birth, session, req, dir, NULL, S_IFREG | mode, WB_OP_CREATE);
    if (r == 0) {
        fd = openat(birth.access.fd, ".",
                    O_RDWR | O_TMPFILE | O_CLOEXEC | (fi->flags & O_EXCL), mode & 07777);
        r = birth_end(&birth, fd < 0 ? -errno : 0, false);
    }
    if (r < 0)
        wb_again_reply(req, -r);
    else
        reply_created(&birth, req, NULL, fd, fi);
}
