/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

/* Two moments of a tree compared: what diff_walk.c and its parts find and diff.c prints. */

#include <glib.h>
#include "client/control.h"
#include "common/changed.h"
#include "common/mount.h"

enum change_kind {
    CHANGE_ADDED,
    CHANGE_REMOVED,
    CHANGE_CONTENT,    /* of a file, the target of a link, the number of a device */
    CHANGE_TYPE,
    CHANGE_ATTRIBUTES, /* mode, owner or group, and nothing else */
    CHANGE_RENAMED,
};

struct change {
    enum change_kind kind;
    char *path; /* relative to what was compared, "" for that itself */
    char *from; /* RENAMED: the path before */
    struct wb_control_entry *before, *after; /* NULL where it was not there */
};

struct diff {
    const struct wb_mount *mount;
    const char *given;  /* PATH, for messages         */
    const char *path;   /* the same in the mount      */
    struct wb_changed *changed; /* paths of the mount that may differ; NULL: all */
    int64_t when[2];
    bool present;       /* the second is the present  */
    GPtrArray *changes; /* of struct change *, by path */
    bool failed;        /* part of it could not be compared; that was reported */

    /* of diff_parts.h */
    int root[2];
    GPtrArray *only[2];
};

/* Compares what was at paths[0] then with what was at paths[1]; either may be NULL: nothing was there. */
void diff_compare(struct diff *diff, char *const paths[2]);
void diff_clear(struct diff *diff);
