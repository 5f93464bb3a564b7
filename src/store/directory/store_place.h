/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

/*
 * Which store belongs to a tree: the traces that a store leaves in SRC, and the decision whether another history may
 * begin.
 *
 * A tree has one history. From its creation on, a store elsewhere is named by the signpost in SRC/.wayback, so a mount
 * that names another directory, or none, neither begins a second history nor uses another store.
 */

#include "store/directory/signpost.h"
#include "store/store.h"

enum wb_store_trace {
    WB_TRACE_NONE,       /* nothing was recorded here yet                                             */
    WB_TRACE_SIGNPOST,   /* SRC/.wayback names the place of the store                                 */
    WB_TRACE_UNREADABLE, /* SRC/.wayback has a signpost that cannot be read                          */
    WB_TRACE_STORE,      /* SRC/.wayback is a store                                                   */
    WB_TRACE_REMNANTS,   /* SRC/.wayback has history in it, but no header and no signpost             */
    WB_TRACE_STAGING,    /* SRC/.wayback-staging has deleted files of a store on another file system  */
};

struct wb_store_traces {
    enum wb_store_trace kind;
    struct wb_signpost signpost; /* WB_TRACE_SIGNPOST */
};

/* 0 or -errno. Costs a few system calls, or more for a tree without a store. */
int wb_store_traces_read(int src_fd, struct wb_store_traces *ret);

/* Whether a directory holds no part of a history; a wayback.conf and empty directories do not count. 1, 0, -errno. */
int wb_store_is_bare(int dir_fd);

/* Whether the tree itself is known to be a copy of the one that the signpost was written in. */
bool wb_store_traces_are_of_a_copy(const struct wb_store_traces *traces, int src_fd);

/* The error for a missing store in a tree with these traces: -ENOENT if there are none, else -ENODEV and a line. */
int wb_store_place_missing(const struct wb_store_traces *traces, int src_fd, const char *home, struct wb_error *why);

/* Whether the open store belongs to this tree, judging by the traces. 0 or -errno with a line. */
int wb_store_place_check(const struct wb_store *store, const struct wb_store_traces *traces, const char *home,
                         struct wb_error *why);

/* Whether another history may begin (WB_STORE_ANOTHER); to be called before anything is created for it. 0 or -errno
 * with a line. */
int wb_store_place_may_begin(int src_fd, struct wb_error *why);

/*
 * Makes the tree lead to the open store: writes the signpost of a store elsewhere, removes that of a store in
 * SRC/.wayback. Does nothing if this is done already. 0 or -errno.
 */
int wb_store_place_mark(const struct wb_store *store);

/* Moves deleted files of the former history into `lost`, where the new one does not use them. 0 or -errno. */
int wb_store_place_put_aside(const struct wb_store *store, const struct wb_store_traces *traces);
