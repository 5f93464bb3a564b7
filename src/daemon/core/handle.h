/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

/*
 * What is open: fi->fh of a live node is a handle (wb_handle_of_request in live/ops.h). Handles hang on their node,
 * because a descriptor that is open already is the best way to reach an inode, and the only one where the name is gone
 * and no graveyard has it.
 *
 * All opens of a node in the same mode share one descriptor: a user who opens one file often must not take the
 * descriptors of all others. Nothing of ours depends on who opened: bytes are read and written at offsets, locks are
 * the kernel's, and O_APPEND, O_SYNC and O_DIRECT of callers are not passed on. Two things do depend on the descriptor:
 * the position in a directory (wb_lower_getdents) and errors of write-back, which fsync(2) reports once for each
 * descriptor (wb_handle_synced).
 */

#include "daemon/core/lower.h"
#include "daemon/core/published.h"
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct wb_session;
struct wb_inode;

/* Set in fi->flags by the kernel for execve(2); no header has it. */
#define WB_OPEN_FOR_EXEC 0x20

/* A directory being read (ops_dir.c). */
#define WB_DIRENTS_SIZE 32768

struct wb_dir_stream {
    pthread_mutex_t lock;
    bool moved;               /* the descriptor is to be put where `offset` is */
    off_t offset;             /* of the entry at `position` */
    size_t position, length;  /* in `data` */
    char *data;               /* WB_DIRENTS_SIZE bytes */
};

/* NULL: no memory. */
struct wb_dir_stream *wb_dir_stream_new(void);
void wb_dir_stream_free(struct wb_dir_stream *stream);

struct wb_handle {
    struct wb_inode *inode;         /* counted, except by pins */
    struct wb_handle *next, **link; /* of the node */
    struct wb_handle *writers_next, **writers_link; /* in nodes.writers; link NULL: not open for writing */
    unsigned refs;
    struct wb_lower *lower;
    int fd;                    /* lower's */
    uid_t uid;                 /* whose share the descriptor counts for */
    unsigned sync_errors;      /* of lower's, those that were returned to whoever opened this, or came before */
    bool writes;               /* opened for writing */
    bool path_only;            /* O_PATH: a pin, which lives as long as its node */
    bool runs;                 /* opened by execve(2): while it is, nobody may write to the file */
    bool appends;              /* O_APPEND below: the file is append-only */
    atomic_bool changed;       /* content was changed through it, or the open made the file: further changes belong to
                                  the same version */
    struct wb_dir_stream *stream; /* opendir (ops_dir.c) */
};

/*
 * Takes over `fd`, also on failure; it is closed where the node has one open in that mode. 0, -EMFILE: `uid` has its
 * share of descriptors, or -ENOMEM. `asked`: wb_shares_room said that there is room (what was made cannot be unmade).
 */
int wb_handle_new(struct wb_session *session, struct wb_inode *inode, int fd, uid_t uid, bool asked,
                  struct wb_handle **ret);

/* Keeps `fd` (O_PATH) for as long as the node exists: what lost its name without a graveyard. If `uid` has its share of
 * descriptors, it is not kept, and the inode is reached through what else is open of it, or not at all (ESTALE). */
void wb_handle_pin(struct wb_session *session, struct wb_inode *inode, int fd, uid_t uid);

void wb_handle_unref(struct wb_session *session, struct wb_handle *handle);

/* Whether somebody has it open for writing. */
bool wb_handle_has_writer(struct wb_session *session, struct wb_inode *inode);

/* It writes no more. Whether it was the last one of its node that did. */
bool wb_handle_retire(struct wb_session *session, struct wb_handle *handle);

/* Whether the file is being executed. */
bool wb_handle_runs(struct wb_session *session, struct wb_inode *inode);

/* It was opened by execve(2). */
void wb_handle_run(struct wb_session *session, struct wb_handle *handle);

/*
 * The result of fsync(2) through the handle, 0 or -errno: an error that another handle of the same descriptor was
 * given is returned to this one as well, once.
 */
int wb_handle_synced(struct wb_session *session, struct wb_handle *handle, int r);
