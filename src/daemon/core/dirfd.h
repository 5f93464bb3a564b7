/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

/*
 * Descriptors of directories, a bounded number of them: the only ones held for the tree that no
 * one has opened. Every operation on an inode starts from its parent's. The least recently
 * used one goes; one in use stays until it is released.
 */

#include <pthread.h>
#include <stdbool.h>

#define WB_DIRFDS_MAX 200

struct wb_session;
struct wb_inode;

struct wb_dirfd {
    int fd;                /* O_PATH|O_DIRECTORY */
    unsigned refs;         /* users, and 1 for the cache */
    bool pinned;           /* the root's: where every way begins */
    struct wb_inode *inode; /* NULL once out of the cache */
    struct wb_dirfd *newer, *older;
};

struct wb_dirfds {
    pthread_mutex_t lock;
    struct wb_dirfd *newest, *oldest;
    unsigned count;
    struct wb_dirfd *root;
};

void wb_dirfds_init(struct wb_dirfds *dirfds);
void wb_dirfds_deinit(struct wb_dirfds *dirfds);

/* The root's descriptor, which is never closed before the end; takes over `fd`. 0 or -ENOMEM. */
int wb_dirfd_pin_root(struct wb_session *session, struct wb_inode *root, int fd);

/* The directory's cached descriptor, or NULL. */
struct wb_dirfd *wb_dirfd_peek(struct wb_session *session, struct wb_inode *inode);

/* Takes over `fd`; returns the cached descriptor (another thread's, if that came first; `fd` is closed then). */
struct wb_dirfd *wb_dirfd_insert(struct wb_session *session, struct wb_inode *inode, int fd);

void wb_dirfd_put(struct wb_session *session, struct wb_dirfd *dirfd);

/* The node goes away, or the directory died: forget its descriptor. */
void wb_dirfd_drop(struct wb_session *session, struct wb_inode *inode);
