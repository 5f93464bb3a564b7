/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "daemon/core/entry.h"

#include "base/checksum.h"
#include "capture/unseen.h"
#include "daemon/core/access.h"
#include "daemon/core/below.h"
#include "daemon/core/kcache_invalidate.h"
#include "daemon/core/handle.h"
#include "daemon/core/number.h"
#include "store/inflight/spans.h"
#include "wayback/when.h"
#include <errno.h>
#include <fcntl.h>
#include <string.h>

ino_t wb_past_ino(struct wb_object object, int64_t when)
{
    int64_t words[3] = {(int64_t)object.ino, object.birth, when};

    return (ino_t)(wb_checksum(words, sizeof(words)) | UINT64_C(1) << 63);
}

uint64_t wb_node_generation(struct wb_object object, int64_t when)
{
    return wb_past_ino(object, when) & INT32_MAX;
}

bool wb_name_is_hidden(const struct wb_session *session, const struct wb_inode *dir, const char *name)
{
    struct stat st;

    if (dir != session->nodes.root)
        return false;
    if (strcmp(name, WB_STORE_NAME) == 0 || strcmp(name, WB_STAGING_NAME) == 0)
        return true;
    /* Names that mean the same may differ by more than case, so only the inode shows what a name means. */
    return session->folds && fstatat(session->src_fd, name, &st, AT_SYMLINK_NOFOLLOW) == 0 &&
           (st.st_ino == session->hidden_ino[0] || st.st_ino == session->hidden_ino[1]);
}

/* Marks the changes that others made in it while nothing was recorded (capture/unseen.h), before anybody sees them, if
 * that can be done now. */
static void note_unseen(struct wb_session *session, struct wb_inode *dir, const char *name, struct wb_object object,
                        const struct stat *st)
{
    int64_t changed = st->st_ctim.tv_sec * WB_WHEN_SECOND + st->st_ctim.tv_nsec;
    struct wb_dir parent, self;
    int r;

    if (!session->recording || wb_spans_has(session->store, changed, S_ISDIR(st->st_mode)))
        return;
    /* Whoever looks up what it has just changed may hold the lock; then the object is a recorded one. */
    if (!wb_ns_try_lock_unrecorded(session))
        return;
    parent = wb_inode_dir(dir, -1);
    self = (struct wb_dir){.object = object, .parent = &parent, .name = name, .fd = -1};
    /* A full disk: the past of the object is refused until it can be marked, and so are changes of it. */
    r = S_ISDIR(st->st_mode) ? wb_capture_unseen(session->store, object, &self, NULL, changed)
                             : wb_capture_unseen_entry(session->store, object, &parent, name, changed);
    if (r > 0)
        atomic_fetch_add(&session->unseen, 1);
    wb_ns_unlock_unrecorded(session);
}

static int fill(struct wb_session *session, struct wb_inode *dir, int fd, const char *name,
                struct fuse_entry_param *entry, struct wb_inode **ret)
{
    struct wb_object object;
    struct wb_inode *inode;
    int r;

    *entry = (struct fuse_entry_param){.attr_timeout = wb_kcache_timeout(session),
                                       .entry_timeout = wb_kcache_timeout(session)};
    r = wb_object_stat(session->store, fd, name, &object, NULL, &entry->attr);
    if (r < 0)
        return r;
    /* Another file system mounted in SRC, or a subvolume: not ours to record, so not shown. */
    if (entry->attr.st_dev != session->src_dev)
        return -EXDEV;
    if (dir && name)
        note_unseen(session, dir, name, object, &entry->attr);
    inode = wb_inode_intern(session, object, entry->attr.st_mode & S_IFMT, dir, name);
    if (!inode)
        return -ENOMEM;
    wb_inode_mask_nlink(session, inode, &entry->attr);
    wb_below_met(inode, &entry->attr);
    entry->ino = wb_node_ino(session, &inode->node);
    entry->generation = wb_node_generation(object, WB_WHEN_PRESENT);
    if (ret)
        *ret = inode;
    else
        wb_inode_unref(session, inode);
    return 0;
}

int wb_entry_fill(struct wb_session *session, struct wb_inode *dir, int dir_fd, const char *name,
                  struct fuse_entry_param *entry, struct wb_inode **ret)
{
    return fill(session, dir, dir_fd, name, entry, ret);
}

int wb_entry_fill_made(struct wb_session *session, struct wb_inode *dir, int dir_fd, const char *name,
                       struct fuse_entry_param *entry, struct wb_inode **ret)
{
    int r = -EIO;

    for (int i = 0; r < 0 && i < WB_KCACHE_LOOKS; i++)
        r = fill(session, dir, dir_fd, name, entry, ret);
    if (r < 0)
        wb_kcache_invalidate_name(session, dir, name);
    return r;
}

int wb_entry_fill_nameless(struct wb_session *session, int fd, struct fuse_entry_param *entry, struct wb_inode **ret)
{
    return fill(session, NULL, fd, NULL, entry, ret);
}
