/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

/* A branch while it is being mounted, and what has to be true before anything is made. */

#include "daemon/branch/branch_memory.h"
#include "daemon/branch/overlay.h"
#include "daemon/options/options.h"

/* Everything is freed at the end, whatever happened. */
struct wb_branching {
    const struct wb_options *options;
    char *source; /* SRC, absolute */
    char *dir;    /* DIR, absolute */
    bool new_dir; /* we made it */
    char *point;  /* MNT, absolute */
    bool known;   /* `memory` was read, not made */
    bool dated;   /* it is to be written, since something was erased in the store */
    struct wb_branch memory;
    struct wb_layers layers;
    struct wb_options lower, upper;
};

/* All return 0, or -errno with a line in `why`. */

/* `path` without links and made absolute; it is a directory. `what`: what it is for. */
int wb_branch_resolve(char **ret, const char *path, const char *what, struct wb_problem *why);

/* Who may mount an overlay, and who may then read in it. */
int wb_branch_check_caller(const struct wb_options *options, const char *point, struct wb_problem *why);

/* Neither directory is, or is in, the other. */
int wb_branch_check_apart(const char *dir, const char *other, struct wb_problem *why);

/* What the branch in `dir` is of, if it is one: `memory` and `known`. */
int wb_branch_recall(struct wb_branching *work, const char *dir, struct wb_problem *why);

/*
 * Whether the moment, which the lower layer pins by now, shows what it showed when the branch was made; `memory` gets
 * to know as of when that is so.
 */
int wb_branch_check_kept(struct wb_branching *work, const struct wb_control_hello *lower, struct wb_problem *why);

/* SRC and DIR: resolved, made where need be, fit for each other; recalls. */
int wb_branch_check_paths(struct wb_branching *work, struct wb_problem *why);
