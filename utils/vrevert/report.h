/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

/* Prints what a revert does (client/revert/revert.h), as text or as JSON. */

#include <stdbool.h>
#include "client/revert/revert.h"
#include "common/json.h"
#include "common/mount.h"

/* The revert of one PATH. */
struct report {
    const struct wb_place *place;
    int64_t when;
    bool dry, json, verbose, all_links;
    uint64_t printed;     /* JSON objects of actions */
    JsonBuilder *builder; /* made by report_begin; the caller unrefs it */
};

void report_begin(struct report *report);

/* For a struct revert_listener; `data`: the struct report. */
void report_event(void *data, const struct revert_event *event);

/* `before`: a time before the first change. */
void report_end(const struct report *report, const struct revert_result *result, int64_t before);
