/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

/* Later changes of the paths that a restore changed: undoing it would overwrite these. */

#include "restores.h"

struct overlap {
    char *path; /* relative to root_fd, at the time of the change */
    char *op, *command;
    int64_t when;
    uint32_t uid, pid;
    bool gap;       /* nothing was recorded at that time                                       */
    bool by_object; /* the change has no path of the restore, but a file that it changed, too  */
};

/*
 * The newest such change of each path, newest first: an array of struct overlap *. Changes that undos took back are
 * left out, and those that undid and redid the same restore. All their paths are added to `covered`, if that is not
 * NULL. NULL with *error, a negative errno.
 */
GPtrArray *overlaps_find(const struct wb_mount *mount, const GPtrArray *restores, const struct restore *restore,
                         struct wb_changed *covered, int *error);
