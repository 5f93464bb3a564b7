/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

/* Prints what a revert does (client/revert/revert.h), as text or as JSON. */

#include <stdbool.h>
#include "client/revert/revert.h"
#include "common/json.h"
#include "common/mount.h"

/* The revert of one PATH. */
struct wb_revert_report {
    const struct wb_place *place;
    int64_t when;
    bool dry, json, verbose, all_links;
    const char *op;           /* JSON: the restore that is undone, or NULL                            */
    const char *reverse;      /* the command that takes this back; NULL: vrevert to the time before it */
    const char *reverse_word; /* of the line that prints it; NULL: "undo"                             */
    JsonBuilder *builder; /* made by report_begin; the caller unrefs it */
};

void wb_revert_report_begin(struct wb_revert_report *report);

/* For a struct revert_listener; `data`: the struct wb_revert_report. */
void wb_revert_report_event(void *data, const struct revert_event *event);

/* `before`: a time before the first change. */
void wb_revert_report_end(const struct wb_revert_report *report, const struct revert_result *result, int64_t before);

/* Whether any action was (with `dry`: would be) done. */
bool wb_revert_did_anything(const struct revert_result *result);

/* "this overwrites 1 file and removes 2 names that did not exist then"; g_free. NULL: nothing is lost. */
char *wb_revert_loss(uint64_t overwritten, uint64_t removed);

/*
 * Where standard input and standard error are a terminal, and the request would remove files: lists them, and asks.
 * True: go on. False after an error line.
 */
bool wb_revert_confirm(struct wb_revert_report *report, const struct revert_request *request);
