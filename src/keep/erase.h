/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

/*
 * vrm: makes the past of a name vanish from the store, for good.
 *
 * Every object that was ever bound to the name (and to names it came from) loses its undo log,
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
#include <sys/types.h>

enum wb_erase_flags {
    WB_ERASE_RECURSIVE = 1 << 0, /* a directory with all that ever was in it */
    WB_ERASE_PRESENT = 1 << 1,   /* also what is there now (else --history) */
};

struct wb_erase_count {
    uint64_t objects, bytes;
};

/* dir/name as found by wb_history_find. The present object is removed by the caller beforehand
 * (through capture, so that only one piece of code removes things); not with `before`, which is 0: all of its past, or
 * a moment of the past. `by`: everything that goes must be that user's, or nothing does (-EPERM); 0 may all. */
int wb_erase(struct wb_history *history, struct wb_spot *dir, const char *name, unsigned flags, int64_t before,
             uid_t by, struct wb_erase_count *ret, struct wb_problem *why);

/* Whether `by` may erase dir/name, with what it is now: 0, -EPERM or another -errno. To be asked
 * before the present is removed, too. */
int wb_erase_permitted(struct wb_history *history, struct wb_spot *dir, const char *name, uid_t by);
