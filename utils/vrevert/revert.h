/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

/*
 * Making a path what it was at an instant T.
 *
 * The state at T is walked top-down, through the mount, and the present is made like it by
 * ordinary system calls, so that the kernel checks every right and the daemon records every
 * change: a revert can be reverted. Three passes, each of which can be repeated:
 *
 *   1. place.c, walk.c  every name of T gets the object it had then: it stays, comes back out
 *                       of the graveyard, is renamed or linked from where it lives now, or (if it lives
 *                       outside of the path named, or is lost) is copied. Files get their
 *                       content and attributes.
 *   2. sweep.c          what has no place at T is removed, into history. Only now: until all
 *                       is placed, anything may still be needed.
 *   3. sweep.c          directories get their attributes, bottom-up, and all is synced.
 *
 * Nothing outside of the path is changed, no link is ever followed out of it. A revert that was
 * interrupted is finished by running it again: what is in its place already is left alone, and
 * what was put aside is found (its names are `.vrevert-*`) and removed.
 */

#include <stdbool.h>
#include <sys/stat.h>
#include "common/json.h"
#include "common/mount.h"

enum revert_action {
    REVERT_RESTORE, /* out of the graveyard: the same object          */
    REVERT_RENAME,  /* from where it lives now                        */
    REVERT_LINK,    /* a further name of an object                    */
    REVERT_COPY,    /* a new object with the old content              */
    REVERT_REWRITE, /* content                                        */
    REVERT_SET,     /* attributes                                     */
    REVERT_REMOVE,
    REVERT_ACTIONS,
};

struct revert {
    struct wb_place *place;
    const char *source; /* the path as it was, from root_fd; NULL: nothing was there */
    int64_t when;
    bool dry, sync, verbose, json;

    char aside[32];      /* prefix of temporary names made for this path */
    GHashTable *touched; /* inodes whose content, attributes or entries were changed */
    GHashTable *moved;   /* with `dry`: inodes that would be renamed away from where they are */
    GHashTable *done;    /* inodes of several names that have their content already  */
    GHashTable *directories; /* "ino-birth" of those that were in it at T; made when needed */
    GHashTable *aside_of; /* where what lost its name to another is now -> that name */
    GHashTable *placed;  /* "ino-birth" of what was copied (with `dry`: or moved) -> its path */

    uint64_t counts[REVERT_ACTIONS];
    uint64_t bytes;
    uint64_t failed;
    uint64_t unplaced; /* names that could not be given back their object */
    JsonBuilder *builder;
};

/*
 * One name: what it was (past_dir/past_name, and its path `source`) and what it is (dir/name, and its
 * `path`). Paths are relative to the mount's root_fd. `dir` is -1 where, with `dry`, there is
 * nothing yet.
 */
struct spot {
    int past_dir;
    const char *past_name;
    const char *source;
    int dir;
    const char *name;
    const char *path;

    struct wb_control_identity identity;
    struct stat want, have;
    bool exists; /* `have` is filled */
    bool same;   /* dir/name is the very object it was, or (after revert_bring) what stands for it */
    bool fresh;  /* revert_bring made it, with its content */

    int found_dir; /* with `dry`: where the object is now, instead of dir/name */
    char *found_name;
};

/* ---- place.c ----------------------------------------------------------------------------------- */

/* Compares then and now. 0 or -errno. */
int revert_look(struct revert *revert, struct spot *spot);

/* Gives the name the object it had (after revert_look found another or none). 0 or -errno. */
int revert_bring(struct revert *revert, struct spot *spot);

/* Frees what the two left in `spot`. */
void revert_leave(struct spot *spot);

/* Whether a living object's path (from the root of the file system) lies in what is reverted;
 * *ret (g_free): relative to root_fd, "" excluded. */
bool revert_inside(const struct revert *revert, const char *path, char **ret);
char *revert_relative(const struct revert *revert, const char *path);

/* ---- own.c ------------------------------------------------------------------------------------- */

/* Whether the living name of the object that was at `spot` was its own at T, too. */
bool revert_is_own(struct revert *revert, const struct spot *spot, const char *living);

/* "ino-birth" */
void revert_key(const struct wb_control_identity *identity, char key[48]);

/* ---- walk.c, sweep.c --------------------------------------------------------------------------- */

/* Pass 1, for spot and everything below. 0, or -errno where going on is pointless. */
/* dir/name of what is there now to be made like then; -1 if (with `dry`) there is nothing. */
int revert_now(const struct spot *spot, const char **ret_name);

/* Opens; where the owner's own mode forbids it, that is widened (the mode of T comes later). */
int revert_open(int dir, const char *name, int flags, mode_t need);

int revert_walk(struct revert *revert, struct spot *spot);

/* Passes 2 and 3, the same way. */
int revert_sweep(struct revert *revert, struct spot *spot);

/* Attributes of one directory as it had them. */
int revert_directory_attrs(struct revert *revert, const struct spot *spot, int dir, const char *name);

/* fsync of what was touched. */
void revert_sync(const struct revert *revert, int dir, const char *name);

/* What this revert, or one that was interrupted, put aside beside the path itself. */
int revert_sweep_beside(struct revert *revert, int parent_dir, const char *parent_path);

/* With `dry`: what would have been put aside and not called for. */
int revert_sweep_aside(struct revert *revert);

/* Removes dir/name with all below it, into history. */
int revert_remove(struct revert *revert, int dir, const char *name, const char *path);

/* ---- report.c ---------------------------------------------------------------------------------- */

/* Path as the user would write it; g_free. */
char *revert_shown(const struct revert *revert, const char *path);

/* One thing was (with `dry`: would be) done. `other`: where from, or NULL. */
void revert_report(struct revert *revert, enum revert_action action, const char *path, const char *other,
                   uint64_t bytes);

/* An error line about `path`; counted. Returns `error` where it makes going on pointless, else 0. */
int revert_fail(struct revert *revert, const char *path, const char *what, int error);

void revert_report_begin(struct revert *revert);
void revert_report_end(struct revert *revert, int64_t before);

/* ---- helpers ----------------------------------------------------------------------------------- */

void revert_add(GHashTable *inodes, uint64_t inode);
bool revert_has(GHashTable *inodes, uint64_t inode);

/* An open directory whose entries were (with `dry`: would be) changed. */
void revert_touch_directory(struct revert *revert, int fd);
