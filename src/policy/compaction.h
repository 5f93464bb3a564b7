/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

/*
 * The settings of background packing: which files are packed, and how. wayback.conf(5) is the text for people,
 * `policy/config` reads it, and daemon/jobs/compact.c carries it out.
 */

#include "policy/path_rules.h"
#include "policy/policy.h"

/* How deleted and replaced files are packed; logs as with zstd, or not at all. */
enum wb_compact_mode {
    WB_MODE_NONE,       /* not at all                                                            */
    WB_MODE_ZSTD,       /* none as what differs from another                                     */
    WB_MODE_DELTA,      /* the newest of a name as it is, the others as what differs from it     */
    WB_MODE_DELTA_ZSTD, /* the same, and the newest compressed                                   */
    WB_MODES,
};

/* "delta+zstd": as in the file. */
const char *wb_compact_mode_name(enum wb_compact_mode mode);
/* WB_MODES: it is none. */
enum wb_compact_mode wb_compact_mode_find(const char *name);

#define WB_REST_MAX (366 * 86400)

struct wb_compaction {
    enum wb_compact_mode mode; /* of all paths that no rule matches                           */
    unsigned rest;             /* seconds since a log was last written, 1 to WB_REST_MAX      */
    GPtrArray *rules;          /* of struct wb_path_rule with an enum wb_compact_mode; NULL: none */
    struct wb_room reserve;    /* of the device, so much stays free while something is packed        */
};

void wb_compaction_deinit(struct wb_compaction *compaction);

/* Whether anything is packed. */
bool wb_compaction_does_something(const struct wb_compaction *compaction);
