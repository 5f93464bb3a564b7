/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

/*
 * Which store a tree has: the traces that a store leaves in SRC, and the decision whether another history may begin.
 *
 * A tree has one history. A store elsewhere is named by the signpost in SRC/.wayback from the moment it is created, so
 * a mount that names another directory, or none, neither begins a second history nor takes another store.
 */

#include "store/directory/signpost.h"
#include "store/store.h"

enum wb_trace {
    WB_TRACE_NONE,      /* nothing was recorded here yet                                             */
    WB_TRACE_SIGNPOST,  /* SRC/.wayback says where the store is                                      */
    WB_TRACE_UNREADABLE, /* SRC/.wayback has a signpost that cannot be read                          */
    WB_TRACE_STORE,     /* SRC/.wayback is a store                                                   */
    WB_TRACE_REMNANTS,  /* SRC/.wayback has history in it, but no header and no signpost             */
    WB_TRACE_STAGING,   /* SRC/.wayback-staging has deleted files of a store on another file system  */
};

struct wb_traces {
    enum wb_trace kind;
    struct wb_signpost signpost; /* WB_TRACE_SIGNPOST */
};

/* 0 or -errno. A few system calls, but for a tree without a store. */
int wb_traces_read(int src_fd, struct wb_traces *ret);

/* Whether a directory holds no part of a history, though perhaps a wayback.conf and empty directories. 1, 0, -errno. */
int wb_store_is_bare(int dir_fd);

/* Whether the tree itself is known to be a copy of the one that the signpost was written in. */
bool wb_traces_are_of_a_copy(const struct wb_traces *traces, int src_fd);

/* What a store that is not found means in a tree with these traces: -ENOENT for none, else -ENODEV and a line. */
int wb_store_place_missing(const struct wb_traces *traces, int src_fd, const char *home, struct wb_problem *why);

/* Whether the store that is open is the one of this tree, as far as the traces tell. 0 or -errno with a line. */
int wb_store_place_check(const struct wb_store *store, const struct wb_traces *traces, const char *home,
                         struct wb_problem *why);

/* Before anything is made for another history (WB_STORE_ANOTHER). 0 or -errno with a line. */
int wb_store_place_may_begin(int src_fd, struct wb_problem *why);
/* The same of the directory that it is to be in. */
int wb_store_place_is_free(int dir_fd, bool apart, const char *home, struct wb_problem *why);

/*
 * Makes the tree lead to the store that is open: writes the signpost of a store elsewhere, removes the one of a store
 * in SRC/.wayback. Does nothing where it is so. 0 or -errno.
 */
int wb_store_place_mark(const struct wb_store *store);

/* Puts deleted files of the former history into `lost`, where the new one does not meet them. 0 or -errno. */
int wb_store_place_put_aside(const struct wb_store *store, const struct wb_traces *traces);
