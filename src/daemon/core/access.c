/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "daemon/core/access.h"

#include "base/cleanup.h"
#include "base/io.h"
#include "daemon/core/lower.h"
#include "store/tables/manifest.h"
#include <errno.h>
#include <fcntl.h>
#include <glib.h>
#include <string.h>

/*
 * The descriptor must be the node's object. Birth time included: no descriptor of the node's is open, so the inode
 * number may have been used again for a file that somebody created in SRC, past the mount.
 */
static int verify(const struct wb_session *session, const struct wb_inode *inode, int fd)
{
    const struct wb_store *mapped = session->store && session->store->identities ? session->store : NULL;
    struct wb_object object;
    struct stat st;
    int r = wb_object_stat(mapped, fd, NULL, &object, NULL, &st);

    if (r < 0 && r != -EXDEV)
        return r;
    return r < 0 || st.st_dev != session->src_dev || !wb_object_equal(object, inode->node.object) ? -ESTALE : 0;
}

static int open_verified(const struct wb_session *session, const struct wb_inode *inode, int dir_fd, const char *name,
                         int flags)
{
    _cleanup_close_ int fd = openat(dir_fd, name, flags | O_NOFOLLOW | O_CLOEXEC);
    int r;

    if (fd < 0)
        return -errno;
    r = verify(session, inode, fd);
    return r < 0 ? r : wb_steal_fd(&fd);
}

/*
 * One step towards a directory: the deepest ancestor with a cached descriptor, and the child below
 * it on the way. Both referenced. A directory that is dead is a place to start from, too.
 */
struct step {
    struct wb_dirfd *above;
    struct wb_inode *below;
    char name[WB_NAME_MAX + 1];
};

static int find_step(struct wb_session *session, struct wb_inode *inode, struct step *step)
{
    struct wb_inode *up;
    int r = 0;

    pthread_mutex_lock(&session->nodes.lock);
    step->below = inode;
    for (up = inode->parent; up; up = up->parent) {
        step->above = wb_dirfd_peek(session, up);
        if (step->above || up->dead)
            break;
        step->below = up;
    }
    if (!up || !step->below->name) {
        r = -ESTALE;
    } else {
        step->below->refs++;
        g_strlcpy(step->name, step->below->name, sizeof(step->name));
    }
    pthread_mutex_unlock(&session->nodes.lock);
    if (r < 0 || !step->above) {
        wb_dirfd_put(session, step->above);
        if (r == 0)
            wb_inode_unref(session, step->below);
        return -ESTALE;
    }
    return 0;
}

/* A dead directory: any descriptor still open, or the graveyard. */
static int open_dead_dir(struct wb_session *session, struct wb_inode *inode)
{
    struct wb_lower *lower = wb_lower_any(session, inode);
    int fd = -ESTALE;

    if (lower) {
        fd = openat(lower->fd, ".", O_PATH | O_DIRECTORY | O_CLOEXEC);
        if (fd < 0)
            fd = -errno;
        wb_lower_put(session, lower, false);
    } else if (session->store) {
        fd = wb_grave_open(session->store, inode->node.object, true, O_PATH | O_DIRECTORY | O_CLOEXEC);
    }
    return fd;
}

/* Opens downwards, name by name, whatever part of the way is not cached. */
static int get_dir(struct wb_session *session, struct wb_inode *inode, struct wb_dirfd **ret)
{
    for (;;) {
        struct step step = {0};
        int fd, r;

        *ret = wb_dirfd_peek(session, inode);
        if (*ret)
            return 0;
        if (inode->dead) {
            fd = open_dead_dir(session, inode);
            if (fd < 0)
                return fd;
            *ret = wb_dirfd_insert(session, inode, fd);
            return *ret ? 0 : -ENOMEM;
        }
        r = find_step(session, inode, &step);
        if (r < 0)
            return r;
        fd = open_verified(session, step.below, step.above->fd, step.name, O_PATH | O_DIRECTORY);
        wb_dirfd_put(session, step.above);
        if (fd >= 0) {
            struct wb_dirfd *dirfd = wb_dirfd_insert(session, step.below, fd);

            r = dirfd ? 0 : -ENOMEM;
            wb_dirfd_put(session, dirfd);
        } else {
            r = fd;
        }
        wb_inode_unref(session, step.below);
        if (r < 0)
            return r;
    }
}

/* The parent and the name a node is known by; -ESTALE where none is. The parent is referenced. */
static int known_place(struct wb_session *session, struct wb_inode *inode, struct wb_inode **parent,
                       char name[WB_NAME_MAX + 1])
{
    int r = -ESTALE;

    pthread_mutex_lock(&session->nodes.lock);
    if (inode->parent && inode->name && !inode->dead) {
        *parent = inode->parent;
        (*parent)->refs++;
        g_strlcpy(name, inode->name, WB_NAME_MAX + 1);
        r = 0;
    }
    pthread_mutex_unlock(&session->nodes.lock);
    return r;
}

static int open_by_name(struct wb_session *session, struct wb_inode *inode, int flags)
{
    char name[WB_NAME_MAX + 1];
    struct wb_inode *parent = NULL;
    struct wb_dirfd *dirfd = NULL;
    int r;

    r = known_place(session, inode, &parent, name);
    if (r < 0)
        return r;
    r = get_dir(session, parent, &dirfd);
    if (r == 0)
        r = open_verified(session, inode, dirfd->fd, name, flags);
    wb_dirfd_put(session, dirfd);
    wb_inode_unref(session, parent);
    return r;
}

static int open_file(struct wb_session *session, struct wb_inode *inode, int flags)
{
    int r;

    /* A name may be a FIFO by the time it is opened; opening must not wait for its other end. */
    if (!(flags & O_PATH))
        flags |= O_NONBLOCK;
    r = open_by_name(session, inode, flags);
    if ((r == -ESTALE || r == -ENOENT || r == -ENOTDIR || r == -ELOOP) && session->store) {
        int fd = wb_grave_open(session->store, inode->node.object, false, flags | O_NOFOLLOW | O_CLOEXEC);

        if (fd >= 0 && (flags & O_ACCMODE) != O_RDONLY && !(flags & O_PATH)) {
            /* It is about to change. */
            int error = wb_manifest_withdraw_body(session->store, inode->node.object, true);

            if (error < 0) {
                close(fd);
                return error;
            }
        }
        if (fd >= 0)
            return fd;
    }
    return r;
}

static bool may_be_moving(int r)
{
    return r == -ESTALE || r == -ENOENT || r == -ENOTDIR || r == -ELOOP;
}

static int get_now(struct wb_session *session, struct wb_inode *inode, bool open, struct wb_access *ret)
{
    int fd = -EACCES;

    if (wb_inode_is_dir(inode)) {
        int r = get_dir(session, inode, &ret->dirfd);

        if (r == 0)
            ret->fd = ret->dirfd->fd;
        ret->path_only = true;
        return r;
    }
    ret->lower = wb_lower_any(session, inode);
    if (ret->lower) {
        ret->fd = ret->lower->fd;
        ret->path_only = ret->lower->mode & O_PATH;
        return 0;
    }
    if (open && S_ISREG(inode->node.type))
        fd = open_file(session, inode, O_RDONLY);
    ret->path_only = fd < 0;
    /* Whatever does not let us read it. */
    if (fd < 0 && !may_be_moving(fd))
        fd = open_file(session, inode, O_PATH);
    if (fd < 0)
        return fd;
    ret->fd = fd;
    ret->owned = true;
    return 0;
}

static int get(struct wb_session *session, struct wb_inode *inode, bool open, struct wb_access *ret)
{
    int r;

    *ret = (struct wb_access){.fd = -1};
    r = get_now(session, inode, open, ret);
    if (may_be_moving(r)) {
        /* Every change holds ns_lock shared until the nodes say what it did. */
        wb_ns_write_lock(session);
        r = get_now(session, inode, open, ret);
        wb_ns_unlock(session);
        if (may_be_moving(r))
            r = -ESTALE;
    }
    return r;
}

int wb_access_get(struct wb_session *session, struct wb_inode *inode, struct wb_access *ret)
{
    return get(session, inode, false, ret);
}

int wb_access_get_open(struct wb_session *session, struct wb_inode *inode, struct wb_access *ret)
{
    return get(session, inode, true, ret);
}

void wb_access_put(struct wb_session *session, struct wb_access *access)
{
    if (access->owned)
        close(access->fd);
    wb_lower_put(session, access->lower, false);
    wb_dirfd_put(session, access->dirfd);
    *access = (struct wb_access){.fd = -1};
}

/* Through /proc: the same inode whatever became of its name, with the permissions of the file. */
static int reopen(int fd, int flags)
{
    char path[32];
    int r = open(wb_fd_path(fd, path), flags | O_CLOEXEC);

    return r < 0 ? -errno : r;
}

int wb_access_open(struct wb_session *session, struct wb_inode *inode, int flags)
{
    struct wb_access access;
    int r;

    if (!wb_inode_is_dir(inode) && !inode->dead) {
        r = open_file(session, inode, flags);
        if (!may_be_moving(r))
            return r;
    }
    r = wb_access_get(session, inode, &access);
    if (r < 0)
        return r;
    if (wb_inode_is_dir(inode)) {
        r = openat(access.fd, ".", flags | O_DIRECTORY | O_CLOEXEC);
        if (r < 0)
            r = -errno;
    } else {
        r = inode->dead && session->store && (flags & O_ACCMODE) != O_RDONLY
                ? wb_manifest_withdraw_body(session->store, inode->node.object, true)
                : 0;
        if (r == 0)
            r = reopen(access.fd, flags | O_NONBLOCK);
    }
    wb_access_put(session, &access);
    return r;
}

void wb_inode_mask_nlink(struct wb_session *session, struct wb_inode *inode, struct stat *st)
{
    if (inode == session->nodes.root && st->st_nlink > 2) {
        st->st_nlink -= session->hidden;
        return;
    }
    if (inode->dead) {
        st->st_nlink = 0;
        return;
    }
    if (!session->store || st->st_nlink < 2 || S_ISDIR(st->st_mode))
        return;
    if (inode->buried == WB_BURIED_UNKNOWN) {
        unsigned char unknown = WB_BURIED_UNKNOWN;
        bool buried = wb_grave_has(session->store, inode->node.object, false) == 1;

        /* An unlink that came meanwhile knows better. */
        atomic_compare_exchange_strong(&inode->buried, &unknown, buried ? WB_BURIED_YES : WB_BURIED_NO);
    }
    if (inode->buried == WB_BURIED_YES)
        st->st_nlink--;
}

int wb_access_stat(struct wb_session *session, struct wb_inode *inode, struct stat *st)
{
    struct wb_access access;
    int r;

    r = wb_access_get(session, inode, &access);
    if (r < 0)
        return r;
    if (fstat(access.fd, st) < 0)
        r = -errno;
    else
        wb_inode_mask_nlink(session, inode, st);
    wb_access_put(session, &access);
    return r;
}
