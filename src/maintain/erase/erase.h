/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

/*
 * vrm: makes the past of names vanish from the store, for good.
 *
 * Every object that was ever bound to a name (and to names it came from) loses its undo log,
 * its images and its place in the graveyard, unless another name that lives needs them. Catalogs
 * and actors are rewritten without them (write, fsync, rename): records that held a slot of the
 * name keep the directory's own attributes only, and the commands that made the changes lose their
 * arguments. The caller keeps other changes of the tree away (the daemon holds its tree lock).
 *
 * With a moment, only what was before it goes. The same objects are cut there: their logs begin with a GAP of that
 * moment, so that older states are refused, and what only those needed is taken away. States of the moment and later
 * stay exact.
 */

#include "history/history.h"
#include <stdbool.h>
#include <sys/types.h>

enum wb_erase_flags {
    WB_ERASE_RECURSIVE = 1 << 0, /* a directory with all that ever was in it */
    WB_ERASE_PRESENT = 1 << 1,   /* also what is there now (else --history) */
};

struct wb_erase_count {
    uint64_t objects, bytes; /* bytes on the disk; with a moment, of files and logs that went or got shorter */
};

/* Bytes on the disk that an erasure frees. */
struct wb_erase_freed {
    uint64_t history; /* when only the past goes */
    uint64_t all;     /* when what is there now goes as well */
    uint64_t shared;  /* counted in neither: blocks that other files share, which may be among those erased */
};

/* dir/name as found by wb_history_find. The present object is removed by the caller beforehand
 * (through capture, so that only one piece of code removes things); not with `before`, which is 0: all of its past, or
 * a moment of the past. `by`: everything that goes must be that user's, or nothing does (-EPERM); 0 may all. */
int wb_erase(struct wb_history *history, struct wb_revision *dir, const char *name, unsigned flags, int64_t before,
             uid_t by, struct wb_erase_count *ret, struct wb_error *why);

/* One of several names. */
struct wb_erase_name {
    struct wb_revision *dir; /* borrowed, as the name is */
    const char *name;
    int result; /* filled: 0 or -errno, as of wb_erase */
    struct wb_erase_count count; /* filled: what several of the names had, objects for each, bytes for one of them */
    bool late; /* our own, false: it was found before, so that it may be gone */
};

/*
 * All of them, each as wb_erase would, but in one pass over the store, and each that can be: one that fails does not
 * stop the others. Killed in between, each is gone as a whole, or it is found and finished when asked for again.
 */
void wb_erase_names(struct wb_history *history, struct wb_erase_name *names, size_t count, unsigned flags, uid_t by);

/* A failure in words; returns `r`. */
int wb_erase_report(struct wb_error *why, int r, const char *name);

/* Measures what erasing dir/name, with all below it, would free; nothing changes. `by` as of wb_erase. 0, -ENOENT: it
 * has no history, and never existed; -EPERM; or another -errno. */
int wb_erase_measure(struct wb_history *history, struct wb_revision *dir, const char *name, uid_t by,
                     struct wb_erase_freed *ret);

/* Whether `by` may erase dir/name, with what it is now: 0, -EPERM or another -errno. To be asked
 * before the present is removed, too. */
int wb_erase_permitted(struct wb_history *history, struct wb_revision *dir, const char *name, uid_t by);
