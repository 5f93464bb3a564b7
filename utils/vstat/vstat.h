/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

/* How vstat shows one change: as a row of a table, and as JSON. */

#include <stdbool.h>
#include <stdio.h>
#include "common/json.h"
#include "common/table.h"
#include "wayback/control.h"

struct show {
    bool directory; /* the changes are of its entries: show their names */
    bool verbose;
    const char *name; /* base name asked for */
};

/* The table fitting `show`; rows are added with show_row. */
struct wb_table *show_table(FILE *out, const struct show *show);
void show_row(struct wb_table *table, const struct show *show, const struct wb_control_version *version);

/* One version as a JSON object in `builder`. `contains`: of --containing (containing_after); NULL: not given. */
void show_json(JsonBuilder *builder, const struct wb_control_version *version, const int *contains);
