/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

/* Shows changes below a path. */

#include "common/changes.h"
#include "wayback/when.h"
#include <stdio.h>

/* ---- showing -------------------------------------------------------------------------------------- */

struct show {
    bool verbose;
    bool operations;       /* a line for each kind of change, else for each version */
    const char *self;      /* how PATH itself is called: as it was given */
    int64_t limit;         /* lines; negative: any number */
    int64_t lines;         /* that were printed */
    bool begun;            /* a group was printed */
    uint32_t actor;        /* of the present group */
    bool gap;              /* the group is of gaps */
    char *header;          /* of the group; NULL: it is printed */
    bool open;             /* a line is gathered: */
    char *op, *path;       /* `op` NULL: so far changes of attributes alone */
    char *rest;
    uint64_t count, bytes;
    GPtrArray *attributes; /* changes of attributes that belong to it if it is a creation: the ends of their lines */
    bool complete;         /* nothing older belongs to it, if it is a version */
    int64_t oldest;        /* `when` of its oldest change */
    char time[WB_WHEN_TEXT_MAX + 4]; /* verbose: of the line */
};

/* Changes come newest first; with `operations` or `verbose` in any order. */
void show_change(struct show *show, const struct wb_change *change);
bool show_is_full(const struct show *show);
void show_end(struct show *show);
void show_json(const struct wb_change *change);

/* ---- a plot (graph.c) ----------------------------------------------------------------------------- */

/* Counts all changes of the walk by time and by program, and prints a bar for each period. *count: how many there were.
 * 1 or -errno, as of wb_change_walk_next. */
int graph_show(struct wb_change_walk *walk, bool json, uint64_t *count);
