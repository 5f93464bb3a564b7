/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

/* Copying the files of a store to where it is moved; for move.c only. */

#include "store/signpost.h"
#include "wayback/move.h"

struct wb_moving {
    int from_fd, to_fd;
    bool look_only;
    struct wb_signpost coming; /* what stands in to_fd */
    struct wb_move_result *result;
    struct _GHashTable *links; /* of files with several names (bundles): inode to the path of the copy */
    wb_move_progress progress;
    void *data;
    uint64_t unsynced_files, unsynced_bytes;
};

/*
 * Makes to_fd hold what from_fd does: copies what is not there or was changed since, removes what is there no more.
 * Left out on both sides is what does not move (deleted files, signposts, locks) and the header, which comes last.
 * With `look_only`, counts. 0, -ECANCELED or -errno with a line in `why`.
 */
int wb_moving_copy(struct wb_moving *moving, struct wb_problem *why);

/* Copies one file of the root to another name there, durably. */
int wb_moving_copy_as(struct wb_moving *moving, const char *from, const char *to);

/* All that was copied to stable storage, and that this is so to the signpost. 0 or -errno. */
int wb_moving_sync(struct wb_moving *moving);

/* Removes all that was copied from a directory that is no store any more. 0 or -errno. */
int wb_moving_clear(int dir_fd);
