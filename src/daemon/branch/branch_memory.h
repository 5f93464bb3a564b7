/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

/*
 * What a branch remembers: of which tree, and of which moment. A small text file in the branch's
 * directory, written once it can be mounted; a directory with this file is a branch.
 */

#include "format/format.h"
#include "history/content/thinned.h"
#include "wayback/error.h"
#include <stdbool.h>

#define WB_BRANCH_FILE "branch" /* in DIR */
#define WB_BRANCH_UPPER "upper" /* what differs from the moment */
#define WB_BRANCH_WORK "work"   /* overlayfs's own */

struct wb_branch {
    char *source;          /* the directory that was branched off: where it was last seen */
    char *store;           /* as it was given, made absolute; NULL: the usual place */
    int64_t when;          /* the moment */
    int64_t made;          /* when the branch was made */
    char uuid[33];         /* of the tree's store */
    struct wb_object root; /* the directory itself */
    int64_t erased;        /* when something was last erased in the store: as of then, of the moment... */
    struct wb_thinned thinned; /* ...so much was not kept, as when the branch was made                  */
};

void wb_branch_clear(struct wb_branch *branch);

/* WB_ABSENT where `dir` is no branch; -EBADMSG, a file that says something else; or -errno. */
int wb_branch_read(const char *dir, struct wb_branch *ret);

/* Publishes it in the directory open as dir_fd. 0 or -errno. */
int wb_branch_write(int dir_fd, const struct wb_branch *branch);
