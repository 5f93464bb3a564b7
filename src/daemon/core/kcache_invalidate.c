/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "daemon/core/kcache_invalidate.h"

#include "daemon/core/number.h"
#include <errno.h>
#include <glib.h>
#include <string.h>

struct doubt {
    struct wb_session *session;
    fuse_ino_t ino;
    off_t offset; /* of a file: from there on; -1: attributes alone */
    char name[WB_NAME_MAX + 1];
};

double wb_kcache_timeout(const struct wb_session *session)
{
    return session->options->read_only ? 0 : session->timeout;
}

void wb_kcache_invalidate_attrs(struct wb_session *session, struct wb_inode *inode)
{
    if (inode)
        fuse_lowlevel_notify_inval_inode(session->fuse, wb_node_ino(session, &inode->node), -1, 0);
}

void wb_kcache_invalidate_listing(struct wb_session *session, struct wb_inode *dir)
{
    /* Its pages are the listing, which is cached where no OPENDIR says otherwise. */
    fuse_lowlevel_notify_inval_inode(session->fuse, wb_node_ino(session, &dir->node), session->no_open ? 0 : -1, 0);
}

static void end(struct wb_session *session)
{
    struct wb_session_threads *threads = &session->threads;

    pthread_mutex_lock(&threads->lock);
    if (--threads->doubts == 0)
        pthread_cond_broadcast(&threads->wake);
    pthread_mutex_unlock(&threads->lock);
}

static void *forget_name(void *data)
{
    struct doubt *doubt = data;
    struct fuse_session *fuse = doubt->session->fuse;

    /* Looked up again, not thrown out: it may be where somebody is. Before Linux 6.2 there is no such difference. */
    if (fuse_lowlevel_notify_expire_entry(fuse, doubt->ino, doubt->name, strlen(doubt->name)) == -ENOSYS)
        fuse_lowlevel_notify_inval_entry(fuse, doubt->ino, doubt->name, strlen(doubt->name));
    end(doubt->session);
    g_free(doubt);
    return NULL;
}

static void *forget_content(void *data)
{
    struct doubt *doubt = data;

    fuse_lowlevel_notify_inval_inode(doubt->session->fuse, doubt->ino, doubt->offset, 0);
    end(doubt->session);
    g_free(doubt);
    return NULL;
}

/* Takes `doubt`, which may be NULL. */
static void begin(struct wb_session *session, struct doubt *doubt, void *(*forget)(void *data))
{
    pthread_t thread;

    if (!doubt)
        return;
    doubt->session = session;
    pthread_mutex_lock(&session->threads.lock);
    session->threads.doubts++;
    pthread_mutex_unlock(&session->threads.lock);
    if (pthread_create(&thread, NULL, forget, doubt) == 0) {
        pthread_detach(thread);
        return;
    }
    end(session);
    g_free(doubt);
}

static void invalidate_later(struct wb_session *session, struct wb_inode *inode, off_t offset)
{
    struct doubt *doubt = g_try_new0(struct doubt, 1);

    if (doubt) {
        doubt->ino = wb_node_ino(session, &inode->node);
        doubt->offset = offset;
    }
    begin(session, doubt, forget_content);
}

void wb_kcache_invalidate_attrs_later(struct wb_session *session, struct wb_inode *inode)
{
    invalidate_later(session, inode, -1);
}

void wb_kcache_invalidate_content(struct wb_session *session, struct wb_inode *inode, off_t offset)
{
    invalidate_later(session, inode, offset);
}

/*
 * The kernel holds the directory's lock from the request to the reply, and takes it to forget a name: whoever
 * answers the request would wait for himself, and with him everyone whose requests he serves.
 */
void wb_kcache_invalidate_name(struct wb_session *session, struct wb_inode *dir, const char *name)
{
    struct doubt *doubt = g_try_new0(struct doubt, 1);

    wb_kcache_invalidate_listing(session, dir);
    if (doubt) {
        doubt->ino = wb_node_ino(session, &dir->node);
        g_strlcpy(doubt->name, name, sizeof(doubt->name));
    }
    begin(session, doubt, forget_name);
}

void wb_kcache_invalidate_wait(struct wb_session *session)
{
    struct wb_session_threads *threads = &session->threads;

    pthread_mutex_lock(&threads->lock);
    while (threads->doubts > 0)
        pthread_cond_wait(&threads->wake, &threads->lock);
    pthread_mutex_unlock(&threads->lock);
}
