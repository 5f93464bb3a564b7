/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

/*
 * Which changes are below the path asked for, what they are called from there, and whether the
 * caller may know of them.
 *
 * Below is what was below then: by the directory, wherever it was at that time, or by the path, whatever
 * directory had it. A caller other than root learns of the names in a directory if he could list and search it
 * then, and may now, and search those between it and the path; of a file asked for by name, if he could read it
 * then, and may now.
 */

#include "daemon/past/doors.h"
#include "history/versions/changes.h"

struct wb_below {
    const struct wb_request *request;
    struct wb_spot *spot;
    struct wb_object object; /* what was asked for; none: there was never anything */
    char *path;              /* from the root, "" for the root itself */
    bool is_dir;
    struct wb_doors *doors;  /* NULL: root asks */
    GHashTable *dirs;        /* struct wb_object -> what is known of a directory that never moved */
    GHashTable *allowed;     /* struct wb_object -> whether the caller may list it: 1, or search it: 2 */
};

/* Resolves the request's path; NAME@TIME lowers *until. 0 or -errno (-ENOENT: never was there). */
int wb_below_init(struct wb_below *below, const struct wb_request *request, int64_t *until);
void wb_below_deinit(struct wb_below *below);

enum { WB_BELOW_NOT, WB_BELOW_YES, WB_BELOW_HIDDEN };

/*
 * *ret_path: relative to the path asked for ("." for itself); of what is not below, with a leading "/", from
 * the root of the mount; NULL where it cannot be told, or must not be. WB_BELOW_YES, WB_BELOW_NOT or -errno.
 */
int wb_below_find(struct wb_below *below, struct wb_change_reader *reader, const struct wb_change_told *told,
                  const struct wb_change_name *name, char **ret_path);
