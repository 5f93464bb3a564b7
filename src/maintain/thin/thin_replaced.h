/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

/* What thin_replaced.c and its plan share. */

#include "maintain/thin/thin_saves.h"
#include "maintain/thin/thinner.h"

/* Saves of a name, one after the other, that go: until the last of them is lost, the file before them shows. */
struct wb_thin_run {
    struct wb_object before;
    int64_t took; /* when the first of them took the name */
    int64_t lost; /* when the last of them lost it        */
    guint first, count; /* of the plan's bodies     */
    bool done;    /* no record mentions them any more     */
};

struct wb_thin_plan {
    GArray *runs;   /* of struct wb_thin_run         */
    GArray *bodies; /* of struct wb_prune_body: to remove */
    uint64_t names; /* that these had                     */
};

/*
 * Which of the saves found in a directory go. A save may, if nothing wants the state it is, nor any of its time aside;
 * and it does, if all that is known of it is in this catalog and in its own undo log, and it is in the graveyard, under
 * no other name and used by nobody. What showed before it must not have been changed since: it shows until later.
 */
int wb_thin_plan(struct wb_thinner *thinner, struct wb_thin_saves *saves, struct wb_thin_plan *plan);
