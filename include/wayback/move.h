/* SPDX-License-Identifier: LGPL-2.1-or-later */
#ifndef WAYBACK_MOVE_H
#define WAYBACK_MOVE_H

#include <stdbool.h>
#include <stdint.h>
#include "wayback/error.h"

/*
 * Moves the store of a tree to another directory, on the same device or another one. The new place is recorded in the
 * tree (SRC/.wayback) and in the old directory, so that every later mount of the tree finds it.
 *
 * At each instant exactly one of the two directories is the store. The store is copied first; the old directory is the
 * store until the copy is complete and on stable storage, also if the move is interrupted and the tree mounted then. An
 * interrupted move continues where it ended when it is requested again.
 */

enum wb_move_flags {
    WB_MOVE_DRY_RUN = 1 << 0, /* only reports how much would be copied and whether it fits; writes nothing            */
    WB_MOVE_AHEAD = 1 << 1,   /* only copies, also while the tree is mounted, when it cannot be moved: the move itself
                                 then copies only the changes since                                                   */
};

struct wb_move_result {
    char from[4096], to[4096]; /* `to` is "" if there was nothing to move and no move is in progress          */
    uint64_t files, bytes;     /* that were copied; with WB_MOVE_DRY_RUN, that would be                        */
    uint64_t there;            /* files that an earlier attempt had copied already                             */
    uint64_t room;             /* free bytes in the new place                                                  */
    bool moved;                /* the store is in `to` now (it may have been there before)                     */
    bool coming;               /* wb_store_where: a move to this place is unfinished                           */
    bool apart;                /* wb_store_where: the store is outside the tree; a signpost was followed       */
};

/* Returns false to stop; the next attempt continues with what was copied. */
typedef bool (*wb_move_progress)(uint64_t files, uint64_t bytes, void *data);

/*
 * `tree`: SRC; `store`: the path of the store if the tree does not record it (-o store=DIR), else NULL; `to`: the new
 * place. Returns 0, or a negative errno with a line in `why`: the tree is mounted (-EBUSY), `to` is not empty
 * (-ENOTEMPTY) or inside the tree (-EINVAL), there is too little space (-ENOSPC; checked before anything is copied),
 * `progress` stopped it (-ECANCELED).
 */
int wb_store_move(const char *tree, const char *store, const char *to, unsigned flags, wb_move_progress progress,
                  void *data, struct wb_move_result *ret, struct wb_error *why);

/* Reports the place of the store of a tree in ret->from. Reads only. Returns 0, or a negative errno with a line in
 * `why`. */
int wb_store_where(const char *tree, const char *store, struct wb_move_result *ret, struct wb_error *why);

struct wb_removal {
    char store[4096];             /* its path                                                                  */
    bool apart;                   /* it is outside of the tree                                                 */
    int tree_fd, store_fd;        /* to be closed by the caller                                                */
    int lock_fd;                  /* while it is open, no other process opens the store for writing; -1: none  */
};

/*
 * Opens the store of a tree that is not mounted, so that the caller can remove it. `store`: its path if the tree does
 * not record it, else NULL. Returns 0, or a negative errno with a line in `why`: another process uses it (-EBUSY), it
 * belongs to another tree (-EXDEV), as in a copy of a tree.
 */
int wb_store_open_to_remove(const char *tree, const char *store, struct wb_removal *ret, struct wb_error *why);

/* Whether a name in the directory of a store is one that Wayback gives. */
bool wb_store_has_name(const char *name);

#endif
