/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

#include "maintain/prune/prune.h"
#include <check.h>

static inline bool prune_never(void *data)
{
    return false;
}

static inline void prune_alone(void *data)
{
}

static inline bool prune_of_nobody(void *data, struct wb_object object)
{
    return false;
}

/*
 * Prunes records that only states before a moment need, in one pass: there is no other process to wait for, and nothing
 * is in use.
 */
static inline struct wb_prune_count prune_before(struct wb_store *store, int64_t before, bool dry_run)
{
    struct wb_prune_options options = {.before = before, .dry_run = dry_run, .stop = prune_never,
                                       .own = prune_alone, .release = prune_alone, .in_use = prune_of_nobody};
    struct wb_prune_count count = {0};
    struct wb_error why = {""};
    struct wb_prune *prune;
    uint64_t snapshots;

    ck_assert_msg(wb_prune_begin(&prune, store, &options, &snapshots, &why) == 0, "%s", why.text);
    for (unsigned i = 0; i < WB_PRUNE_STEPS; i++)
        ck_assert_int_eq(wb_prune_step(prune, i, &count), 0);
    wb_prune_free(prune);
    return count;
}
