/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

/* The parts of moving a store; for the files of move only. */

#include "store/directory/signpost.h"
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
    int64_t begun, done; /* the pass under way, and the last one that was complete: when they began; 0: none  */
    int64_t shift, done_shift; /* of the wall clock against the time since boot, then                        */
};

/* Descriptors: of SRC, and of the locks of both places; -1: not held. */
struct wb_move_places {
    int src_fd;
    int from_lock, to_lock;
    const char *store;
    struct wb_moving moving;
};

/* ---- where it goes to (move_to.c) ------------------------------------------------------------- */

int wb_move_path(int fd, char path[4096]);
bool wb_move_same_dir(int a_fd, int b_fd);

/* Who reads it from another process has it open in the old place, and would see it go: -EBUSY. */
struct wb_store;
int wb_move_check_readers(const struct wb_store *store, struct wb_error *why);

/* Opens `to`, or makes it, where from_fd is open. 0 or -errno with a line in `why`, as those that follow. */
int wb_move_open_to(struct wb_move_places *places, const char *to, struct wb_error *why);
/* From then on, processes that open the directory know that it is to be the store, and is not yet. Takes its lock. */
int wb_move_announce(struct wb_move_places *places, struct wb_error *why);

/* ---- what leads there (move.c) ------------------------------------------------------------ */

/* From there to to_fd: of from_fd, this makes to_fd the store. 0 or -errno. */
int wb_move_lead(int dir_fd, const struct wb_moving *moving);
/* The tree itself says where its store is, unless there is another one in it. 0 or -errno. */
int wb_move_lead_from_tree(const struct wb_move_places *places);
/* The graveyard in SRC, where nothing is in it any more. */
void wb_move_remove_staging(const struct wb_move_places *places);

/* ---- one file (move.c) -------------------------------------------------------------------- */

/* In the root of to_fd: the file being copied, until it has its name. */
#define WB_MOVING_TEMPORARY "copying.new"

/* ---- copying (move.c) --------------------------------------------------------------------- */

/*
 * Makes the content of to_fd the same as that of from_fd: copies missing and changed files, deletes those that from_fd
 * does not have any more. Files that do not move (deleted files, signposts, locks) and the header, copied last,
 * are left out on both sides. With `look_only`, only counts. Files that did not change since a complete pass before are
 * not searched for again. 0, -ECANCELED or -errno with a line in `why`.
 */
int wb_moving_copy(struct wb_moving *moving, struct wb_error *why);

/* Before anything is copied: what there is to copy, and whether it fits. */
int wb_move_check_room(struct wb_moving *moving, struct wb_error *why);

/* Copies one file of the root to another name there, durably. */
int wb_moving_copy_as(struct wb_moving *moving, const char *from, const char *to);

/* Removes all that was copied from a directory that is no store any more; `is_grave`: but the directories for deleted
 * files, which are in use. 0 or -errno. */
int wb_moving_clear(int dir_fd, bool is_grave);

/* The header of the store in that directory. 0 or -errno. */
struct wb_header;
int wb_move_read_header(int dir_fd, struct wb_header *ret);
