/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

/*
 * What is open: fi->fh of a live node is a handle. Handles hang on their node, because a
 * descriptor that is open already is the best way to reach an inode, and the only one where the
 * name is gone and no graveyard has it.
 */

#include "daemon/published.h"
#include <stdbool.h>
#include <stdint.h>

struct wb_session;
struct wb_live;
struct wb_dir_stream;

/* Set in fi->flags by the kernel for execve(2); no header has it. */
#define WB_OPEN_FOR_EXEC 0x20

struct wb_handle {
    struct wb_live *live;      /* counted, except by pins */
    struct wb_handle *next;
    struct wb_handle *writers_next, **writers_link; /* in nodes.writers; link NULL: not open for writing */
    unsigned refs;
    int fd;
    bool writes;               /* opened for writing */
    bool path_only;            /* O_PATH: a pin, which lives as long as its node */
    bool runs;                 /* opened by execve(2): while it is, nobody may write to the file */
    bool appends;              /* O_APPEND below: the file is append-only */
    bool sync_writes;          /* O_SYNC past the page cache: no fsync follows a write */
    struct wb_dir_stream *stream; /* opendir (ops_dir.c) */
};

/* Takes over `fd`, also on failure (NULL: no memory). */
struct wb_handle *wb_handle_new(struct wb_session *session, struct wb_live *live, int fd);

/* Keeps `fd` (O_PATH) for as long as the node exists: what lost its name without a graveyard. */
void wb_handle_pin(struct wb_session *session, struct wb_live *live, int fd);

void wb_handle_unref(struct wb_session *session, struct wb_handle *handle);

/* An open handle of the node, referenced, or NULL. */
struct wb_handle *wb_handle_any(struct wb_session *session, struct wb_live *live);

/* Whether somebody has it open for writing. */
bool wb_handle_has_writer(struct wb_session *session, struct wb_live *live);

/* It writes no more. Whether it was the last one of its node that did. */
bool wb_handle_retire(struct wb_session *session, struct wb_handle *handle);

/* Whether the file is being executed. */
bool wb_handle_runs(struct wb_session *session, struct wb_live *live);

/* The node is freed: whatever still hangs on it goes. */
void wb_handles_close(struct wb_live *live);

static inline struct wb_handle *wb_handle_of(uint64_t fh)
{
    return wb_published(fh);
}
