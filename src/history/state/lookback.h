/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

/*
 * Short looks into a catalog, from its newest record backward: the last object with a name, where a
 * directory was. Each reads one log once, in constant memory.
 */

#include "history/history.h"

struct wb_unbind_record {
    int64_t when; /* of the change that took the name away */
    uint16_t op;
    struct wb_object object;
    struct wb_attrs attrs;
};

/*
 * The newest change, at or before `until`, by which dir's entry `name` lost an object. 0,
 * WB_ABSENT, -EIO where a damaged record lies before it, or -errno.
 */
int wb_lookback_find_unbind(const struct wb_store *store, struct wb_object dir, const char *name, int64_t until,
                       struct wb_unbind_record *ret);

/*
 * The newest change at or before `until` by which dir's entry `name` came, went or was replaced: its `when`. 0,
 * WB_ABSENT, -EIO as above, or -errno.
 */
int wb_lookback_change(const struct wb_store *store, struct wb_object dir, const char *name, int64_t until,
                       int64_t *ret);

/*
 * Where directory `dir` was at `when`, from its own catalog: the parent and the name in it. 0,
 * WB_ABSENT where it has no catalog (it never changed nor moved), -EIO as above, or -errno.
 */
int wb_lookback_place(const struct wb_store *store, struct wb_object dir, int64_t when,
                      struct wb_object *ret_parent, char ret_name[WB_NAME_MAX + 1]);

/* Directory `dir` at `when`, found through the catalogs; -EIO where they do not lead to it. */
int wb_lookback_dir(struct wb_history *history, struct wb_object dir, int64_t when, struct wb_revision **ret);

/*
 * The object that dir's entry `name` lost by the change at `when`, as it was just before, wherever the directory was:
 * for callers that do not need the path there. 0, WB_ABSENT, -EIO, or -errno.
 */
int wb_lookback_lost(struct wb_history *history, struct wb_object dir, const char *name, int64_t when,
                     struct wb_revision **ret);
