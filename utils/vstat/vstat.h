/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

/* How vstat shows a version, or one change: as a row of a table, and as JSON. */

#include <stdbool.h>
#include <stdio.h>
#include "common/json.h"
#include "common/table.h"
#include "wayback/control.h"

struct show {
    bool directory;  /* the changes are of its entries: show their names */
    bool operations; /* rows are single changes                          */
    bool verbose;
    const char *name; /* base name asked for */
    int64_t now;      /* ages refer to it; 0: show none */
};

/* A version, or with show->operations a change. */
struct row {
    struct wb_control_version is; /* of a version: its last change, with the state before its first one, and the range
                                     of all; `change` is the number of the version, 0: of none */
    uint32_t operation;  /* the number of the change, with show->operations */
    uint32_t operations; /* so many changes */
    int64_t began;
    const char *lines; /* "+3 -1", "-" */
    const int *contains; /* of --containing (containing_after); NULL: not given */
};

/* The table fitting `show`; rows are added with show_row. */
struct wb_table *show_table(FILE *out, const struct show *show);
void show_row(struct wb_table *table, const struct show *show, const struct row *row);

/* As a JSON object in `builder`. */
void show_json(JsonBuilder *builder, const struct show *show, const struct row *row);
