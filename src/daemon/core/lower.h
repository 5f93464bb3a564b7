/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

/*
 * Descriptors of the inodes in SRC, at most one for each node and mode. Handles share them (handle.h), and an operation
 * that came without a handle finds them by the node.
 *
 * A descriptor is closed when its last handle and its last operation end. If the session caches descriptors
 * (wb_lowers.caches), one that was opened for an operation stays open until the node is freed or
 * wb_io_make_room (live/io.h) evicts it.
 */

#include "daemon/core/shares.h"
#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct wb_session;
struct wb_inode;
struct wb_dir_stream;

/* One descriptor of a node. All but `lock` and `reader` is under nodes.lock. */
struct wb_lower {
    struct wb_lower *next;     /* of the node */
    struct wb_inode *inode;
    struct wb_lower *newer, *older; /* if idle */
    unsigned refs;             /* handles */
    unsigned users;            /* operations without a handle, under way */
    unsigned runs;             /* of the handles, those opened by execve(2) */
    int fd;
    int mode;                  /* WB_LOWER_MODE of its flags */
    struct wb_holders holders;
    bool cached;               /* stays open without handles and operations; counts for `uid` */
    bool idle;                 /* cached, without handles and operations: listed in session->lowers */
    bool written;              /* cached: content was changed through it since it was synced last */
    unsigned turn;             /* if idle: of session->lowers, when it was used last */
    uid_t uid;
    int sync_error;            /* what fsync(2) returned when it failed last, */
    unsigned sync_errors;      /* and how often it did */
    struct wb_dir_stream *stream; /* cached: of readers without a handle */
    pthread_mutex_t lock;      /* of the position; and of a sync without a handle, until its error is kept */
    const void *reader;        /* whose position it is; NULL: nobody's */
};

/* Cached descriptors; under nodes.lock. */
struct wb_lowers {
    bool caches;
    struct wb_lower *newest, *oldest; /* idle ones */
    struct wb_lower *closing;         /* of nodes that were freed: to be closed without the lock */
    unsigned count;                   /* all cached ones */
    unsigned max;                     /* beyond this many, idle ones are evicted */
    unsigned limit;                   /* never more than so many */
    unsigned turn;                    /* counts the turns of wb_io_close_unused (live/io.h) */
};

/* The flags by which descriptors of one node differ. */
#define WB_LOWER_MODE (O_ACCMODE | O_APPEND | O_NOATIME | O_PATH)

/* Takes over `fd`, which is left open on failure. Not yet of a node. NULL: no memory. */
struct wb_lower *wb_lower_new(int fd);
/* Closes it. NULL is allowed. 0 or the error of close(2). */
int wb_lower_free(struct wb_lower *lower);

/* ---- with nodes.lock held -------------------------------------------------------------------- */

struct wb_lower *wb_lower_of_mode(const struct wb_inode *inode, int mode);
void wb_lower_attach(struct wb_inode *inode, struct wb_lower *lower);
/* A handle or an operation begins to use it. */
void wb_lower_use(struct wb_session *session, struct wb_lower *lower);
/* One has ended. Returns the descriptor if it is to be freed, without the lock; else NULL. */
struct wb_lower *wb_lower_release(struct wb_session *session, struct wb_lower *lower);
/* Takes a cached one from its node and from the cache. */
void wb_lower_detach(struct wb_session *session, struct wb_lower *lower);
/* The node is freed: its cached descriptors go to session->lowers.closing. */
void wb_lowers_drop(struct wb_session *session, struct wb_inode *inode);

/* ---- for operations -------------------------------------------------------------------------- */

void wb_lowers_init(struct wb_session *session, bool caches);
/* Closes those that wb_lowers_drop took from their nodes. */
void wb_lowers_close_dropped(struct wb_session *session);

/* The node's descriptor of the first of these modes that it has, used until wb_lower_put, or NULL. */
struct wb_lower *wb_lower_find(struct wb_session *session, struct wb_inode *inode, const int *modes, size_t count);

/* Any of the node's, rather one that is no O_PATH; likewise. */
struct wb_lower *wb_lower_any(struct wb_session *session, struct wb_inode *inode);

/*
 * Takes over `fd`, also on failure; it is closed if the node has one of that mode. The result is used until
 * wb_lower_put. 0, -EMFILE: too many must stay open, or `uid` has its share of descriptors (`asked` as of
 * wb_handle_new); or -ENOMEM.
 */
int wb_lower_add(struct wb_session *session, struct wb_inode *inode, int fd, uid_t uid, bool asked,
                 struct wb_lower **ret);

/* `wrote`: content may have been changed through it. `lower` may be NULL. */
void wb_lower_put(struct wb_session *session, struct wb_lower *lower, bool wrote);

/* getdents64(2) of a directory from `offset` on, for `reader`. `moved`: the descriptor is certainly elsewhere. */
long wb_lower_getdents(struct wb_lower *lower, const void *reader, bool moved, off_t offset, void *data, size_t size);
