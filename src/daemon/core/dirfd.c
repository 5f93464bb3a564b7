/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "daemon/core/dirfd.h"

#include "daemon/core/session.h"
#include <errno.h>
#include <glib.h>
#include <unistd.h>

void wb_dirfds_init(struct wb_dirfds *dirfds)
{
    pthread_mutex_init(&dirfds->lock, NULL);
}

static void unref(struct wb_dirfd *dirfd)
{
    if (--dirfd->refs > 0)
        return;
    close(dirfd->fd);
    g_free(dirfd);
}

static void unlink_entry(struct wb_dirfds *dirfds, struct wb_dirfd *dirfd)
{
    if (dirfd->newer)
        dirfd->newer->older = dirfd->older;
    else
        dirfds->newest = dirfd->older;
    if (dirfd->older)
        dirfd->older->newer = dirfd->newer;
    else
        dirfds->oldest = dirfd->newer;
    dirfd->newer = dirfd->older = NULL;
}

static void link_newest(struct wb_dirfds *dirfds, struct wb_dirfd *dirfd)
{
    dirfd->older = dirfds->newest;
    if (dirfds->newest)
        dirfds->newest->newer = dirfd;
    dirfds->newest = dirfd;
    if (!dirfds->oldest)
        dirfds->oldest = dirfd;
}

static void evict(struct wb_dirfds *dirfds, struct wb_dirfd *dirfd)
{
    unlink_entry(dirfds, dirfd);
    dirfd->inode->dirfd = NULL;
    dirfd->inode = NULL;
    dirfds->count--;
    unref(dirfd);
}

void wb_dirfds_deinit(struct wb_dirfds *dirfds)
{
    while (dirfds->oldest)
        evict(dirfds, dirfds->oldest);
    if (dirfds->root)
        unref(dirfds->root);
    dirfds->root = NULL;
    pthread_mutex_destroy(&dirfds->lock);
}

int wb_dirfd_pin_root(struct wb_session *session, struct wb_inode *root, int fd)
{
    struct wb_dirfd *dirfd = g_try_new0(struct wb_dirfd, 1);

    if (!dirfd) {
        close(fd);
        return -ENOMEM;
    }
    dirfd->fd = fd;
    dirfd->refs = 1;
    dirfd->inode = root;
    dirfd->pinned = true;
    root->dirfd = session->dirfds.root = dirfd;
    return 0;
}

struct wb_dirfd *wb_dirfd_peek(struct wb_session *session, struct wb_inode *inode)
{
    struct wb_dirfds *dirfds = &session->dirfds;
    struct wb_dirfd *dirfd;

    pthread_mutex_lock(&dirfds->lock);
    dirfd = inode->dirfd;
    if (dirfd) {
        dirfd->refs++;
        if (!dirfd->pinned && dirfds->newest != dirfd) {
            unlink_entry(dirfds, dirfd);
            link_newest(dirfds, dirfd);
        }
    }
    pthread_mutex_unlock(&dirfds->lock);
    return dirfd;
}

struct wb_dirfd *wb_dirfd_insert(struct wb_session *session, struct wb_inode *inode, int fd)
{
    struct wb_dirfds *dirfds = &session->dirfds;
    struct wb_dirfd *dirfd;

    pthread_mutex_lock(&dirfds->lock);
    dirfd = inode->dirfd;
    if (dirfd) {
        close(fd);
    } else {
        dirfd = g_try_new0(struct wb_dirfd, 1);
        if (!dirfd) {
            close(fd);
            goto out;
        }
        dirfd->fd = fd;
        dirfd->refs = 1;
        dirfd->inode = inode;
        inode->dirfd = dirfd;
        link_newest(dirfds, dirfd);
        if (++dirfds->count > WB_DIRFDS_MAX)
            evict(dirfds, dirfds->oldest);
    }
    dirfd->refs++;
out:
    pthread_mutex_unlock(&dirfds->lock);
    return dirfd;
}

void wb_dirfd_put(struct wb_session *session, struct wb_dirfd *dirfd)
{
    if (!dirfd)
        return;
    pthread_mutex_lock(&session->dirfds.lock);
    unref(dirfd);
    pthread_mutex_unlock(&session->dirfds.lock);
}

void wb_dirfd_drop(struct wb_session *session, struct wb_inode *inode)
{
    /* Nobody else has the node any more (or it is a file, which never has one). */
    if (!inode->dirfd)
        return;
    pthread_mutex_lock(&session->dirfds.lock);
    if (inode->dirfd)
        evict(&session->dirfds, inode->dirfd);
    pthread_mutex_unlock(&session->dirfds.lock);
}
