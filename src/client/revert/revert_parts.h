/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

/* Declarations that only the files of this folder share. */

#include <stdbool.h>
#include <sys/stat.h>
#include "client/revert/revert.h"

#define REVERT_ASIDE_MAX 32

/* The PATHs of one command line that are reverted to the same moment, in the same mount. */
struct revert_set {
    GPtrArray *paths;    /* relative to root_fd, none below another                               */
    GHashTable *outside; /* inode of a file -> links outside of `paths`; made when needed         */
    dev_t dev;           /* of the mount; set with `outside`                                      */
    bool complete;       /* `outside` has all files inside, not only those of several links       */
    GHashTable *placed;  /* "ino-birth" of a copied object (with `dry`: or a moved one) -> its path */
    GHashTable *inodes;  /* the same -> inode of the copy                                         */
};

struct revert {
    const struct wb_mount *mount;
    const char *path; /* relative to mount->root_fd */
    struct revert_set *set;
    const char *source; /* the path as it was, from root_fd; NULL: nothing was there */
    int64_t when;
    dev_t dev; /* of the mount: objects of other mounts below it are left alone */
    bool dry, sync;
    bool all_links; /* change files in place, with their names outside */

    char aside[REVERT_ASIDE_MAX]; /* prefix of temporary names made for this path */
    GHashTable *touched; /* inodes whose content, attributes or entries were changed */
    GHashTable *moved;   /* with `dry`: inodes that would be renamed away from where they are */
    GHashTable *done;    /* inodes of several names that have their content already  */
    GHashTable *broken;  /* inodes whose names inside get a new file                  */
    GHashTable *directories; /* "ino-birth" of the directories below `path` at T; made when needed */
    GHashTable *walked;  /* path of a directory that pass 1 restored -> its inode */
    GHashTable *aside_of; /* present path of an object that lost its name to another -> that name */

    enum revert_extent (*extent)(const void *data, const char *path); /* NULL: all */
    const void *extent_data;

    const struct revert_listener *listener;
    struct revert_result result;
};

/*
 * One name: its past (past_dir/past_name, and its path `source`) and its present (dir/name, and its `path`). Paths are
 * relative to the mount's root_fd. `dir` is -1 if, with `dry`, the directory does not exist yet.
 */
struct revision {
    int past_dir;
    const char *past_name;
    const char *source;
    int dir;
    const char *name;
    const char *path;

    struct wb_control_identity identity;
    struct stat want, have;
    bool exists; /* `have` is filled */
    bool same;   /* dir/name is the same object as then, or (after revert_bring) its replacement */
    bool fresh;  /* revert_bring made it, with its content */
    struct stat meant; /* the object that revert_bring put there, if `is_meant` */
    bool is_meant;

    int found_dir; /* with `dry`: where the object is now, instead of dir/name */
    char *found_name;
};

/* ---- place.c ----------------------------------------------------------------------------------- */

/* Compares the past with the present: fills `want`, `have`, `identity`, `exists` and `same`. 0 or -errno; -EXDEV: a
 * mount point. */
int revert_look(struct revert *revert, struct revision *revision);

/* Gives the name the object it had (after revert_look found another or none). 0 or -errno. */
int revert_bring(struct revert *revert, struct revision *revision);

/* Gives the name a new file equal to the old one, which is complete before it takes the name; or a link to that file if
 * another name of the old one has it already. `others`: the reason is that the present file has names outside, which
 * keep it. 0 or -errno; *what: the attribute that cannot be set, or NULL. */
int revert_break(struct revert *revert, struct revision *revision, bool others, const char **what);

/* Frees the members of `revision` that these functions set. */
void revert_leave(struct revision *revision);

/* Whether the path of a living object (from the root of the file system) lies in the reverted path. *ret (g_free): the
 * path relative to root_fd, never "". */
bool revert_inside(const struct revert *revert, const char *path, char **ret);
char *revert_relative(const struct revert *revert, const char *path);

/* ---- own.c ------------------------------------------------------------------------------------- */

/* Whether the object that was at `revision` had its present name `living` at T, too. */
bool revert_is_own(struct revert *revert, const struct revision *revision, const char *living);

/* "ino-birth" */
void revert_key(const struct wb_control_identity *identity, char key[48]);

/* ---- links.c ----------------------------------------------------------------------------------- */

/* The prefix of temporary names for PATH. */
void revert_aside_prefix(const char *path, char prefix[REVERT_ASIDE_MAX]);

bool revert_set_has(const struct revert_set *set, const char *path);

/* Whether the file has names outside of the PATHs. */
bool revert_has_other_names(struct revert *revert, const struct stat *st);

/* The same for a file that is known by its inode alone, and has at least one name. */
bool revert_lives_outside(struct revert *revert, uint64_t inode);

/* One of the names of revision->have outside of the PATHs, or NULL; g_free. Only the directory of PATH is searched,
 * because nothing records where the other names are. */
char *revert_other_name(const struct revert *revert, const struct revision *revision);

/* Whether dir/name differs in content or attributes from what `revision` was: 1, 0 or -errno. */
int revert_differs(const struct revision *revision, int dir, const char *name);

/* ---- walk.c, sweep.c --------------------------------------------------------------------------- */

/* The directory and name of the present entry that is made equal to the past one; -1 if (with `dry`) there is none. */
int revert_now(const struct revision *revision, const char **ret_name);

/*
 * Whether nothing happened to the present entry since T, so that it need not be compared: its last change has the same
 * time as then, and is so long before T that no later change can share the clock's tick.
 */
bool revert_is_untouched(const struct revert *revert, const struct revision *revision, const struct stat *have);

/* Holds dir/name (wb_hold), which must be the object that `revision` found or made there. A descriptor or -errno. */
int revert_hold(const struct revision *revision, int dir, const char *name);

/* Opens the object that `held` holds. If its mode forbids that and the caller owns it, `need` is added to the mode; the
 * mode of T is set later. A descriptor or -errno. */
int revert_open(int held, int flags, mode_t need);

/* Pass 1, for `revision` and everything below. 0, or -errno if it is useless to continue. */
int revert_walk(struct revert *revert, struct revision *revision);

/* Notes the directory that got the name `path`, open as `fd`; and returns whether `fd` is the noted one. */
void revert_note_walked(struct revert *revert, const char *path, int fd);
bool revert_was_walked(const struct revert *revert, const char *path, int fd);

/* Passes 2 and 3, as revert_walk. */
int revert_sweep(struct revert *revert, struct revision *revision);

/* Gives a directory, open or held, the attributes it had. */
int revert_directory_attrs(struct revert *revert, const struct revision *revision, int held);

/* fsync of the touched entry. */
void revert_sync(const struct revert *revert, int dir, const char *name);

/* Removes objects that this revert, or an interrupted one, put aside next to the path itself. */
int revert_sweep_beside(struct revert *revert, int parent_dir, const char *parent_path);

/* With `dry`: reports the removal of objects that would have been put aside and not been needed. */
int revert_sweep_aside(struct revert *revert);

/* Removes dir/name with all below it, into history. */
int revert_remove(struct revert *revert, int dir, const char *name, const char *path);

/* ---- report.c ---------------------------------------------------------------------------------- */

/* One action was (with `dry`: would be) done. `other`: see struct revert_event; NULL: none, or not known. */
void revert_report(struct revert *revert, enum revert_action action, const char *path, const char *other,
                   uint64_t bytes);

/* With --all-links: names outside changed with `path`. */
void revert_report_shared(struct revert *revert, const char *path);

/* As revert_fail: another file system is mounted at `path`, which was left alone. Returns 0. */
int revert_fail_mount(struct revert *revert, const char *path);

/* Reports and counts a failure at `path`. Returns `error` if it is useless to continue after it, else 0. */
int revert_fail(struct revert *revert, const char *path, const char *what, int error);

/* ---- helpers ----------------------------------------------------------------------------------- */

void revert_add(GHashTable *inodes, uint64_t inode);
bool revert_has(GHashTable *inodes, uint64_t inode);

/* Whether dir/name, which is `st`, belongs to another mount. */
bool revert_is_mount(const struct revert *revert, int dir, const char *name, const struct stat *st);

/* How much of `path` (relative to root_fd) is to be reverted. */
enum revert_extent revert_extent_of(const struct revert *revert, const char *path);

/* Notes that entries of an open directory were (with `dry`: would be) changed. */
void revert_touch_directory(struct revert *revert, int fd);
