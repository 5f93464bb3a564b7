/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

/* Shows changes below a path. */

#include "common/changes.h"
#include "wayback/when.h"
#include <stdio.h>

/* ---- showing -------------------------------------------------------------------------------------- */

struct show {
    bool verbose;
    const char *self;      /* how PATH itself is called: as it was given */
    bool open;             /* a line is gathered */
    uint32_t actor;        /* of the group that was begun */
    bool gap;              /* the group is of gaps */
    bool begun;
    char *op, *path;       /* of the line that is gathered */
    char *rest;
    uint64_t count, bytes;
    char time[WB_WHEN_TEXT_MAX + 4]; /* verbose: of the line */
};
void show_change(struct show *show, const struct wb_change *change);
void show_end(struct show *show);
void show_json(const struct wb_change *change);
