/* SPDX-License-Identifier: LGPL-2.1-or-later */
#ifndef WAYBACK_MOVE_H
#define WAYBACK_MOVE_H

#include <stdbool.h>
#include <stdint.h>
#include "wayback/error.h"

/*
 * Moves the store of a tree to another directory, on the same device or another. Where it is then is written down
 * in the tree (SRC/.wayback) and in the directory it was in, so whoever mounts the tree finds it.
 *
 * At each instant exactly one of the two directories is the store. It is copied first; until it is there whole and
 * on the disk, the old one is, and goes on to be if the move is interrupted and the tree mounted. A move that was
 * interrupted goes on where it was when it is asked for again.
 */

enum wb_move_flags {
    WB_MOVE_DRY_RUN = 1 << 0, /* tells what there is to be copied, and whether there is room; writes nothing      */
    WB_MOVE_AHEAD = 1 << 1,   /* copies what there is and leaves it at that, also while the tree is mounted: the move
                                 itself, which cannot be made then, has only to copy what changed since               */
};

struct wb_move_result {
    char from[4096], to[4096]; /* *to is empty where nothing was to be moved, and nothing is under way     */
    uint64_t files, bytes;     /* that were, or are to be, copied                                           */
    uint64_t there;            /* files found there already, of an earlier attempt                          */
    uint64_t room;             /* bytes free where it goes to                                               */
    bool moved;                /* the store is in `to` now (it may have been before)                        */
    bool coming;               /* wb_store_where: a move to here is not finished                            */
    bool apart;                /* wb_store_where: the store is not in the tree, so a signpost led there     */
};

/* false: stop; what was copied stays for the next time. */
typedef bool (*wb_move_progress)(uint64_t files, uint64_t bytes, void *data);

/*
 * `tree`: SRC; `store`: where the store is, if the tree does not tell (-o store=DIR); `to`: where it is to be. 0, or a
 * negative errno with a line in `why`: the tree is mounted (-EBUSY), `to` is not empty (-ENOTEMPTY) or inside of the
 * tree (-EINVAL), there is no room (-ENOSPC; told before anything is copied), stopped (-ECANCELED).
 */
int wb_store_move(const char *tree, const char *store, const char *to, unsigned flags, wb_move_progress progress,
                  void *data, struct wb_move_result *ret, struct wb_problem *why);

/* Where the store of a tree is: `from`. Reads only. */
int wb_store_where(const char *tree, const char *store, struct wb_move_result *ret, struct wb_problem *why);

#endif
