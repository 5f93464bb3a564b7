/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

/*
 * Which changes of which paths are recorded, as settings: `history = write | close | none` in the sections of
 * wayback.conf. `policy/config` reads them, daemon/live/recording.c applies them.
 */

#include "policy/path_rules.h"

enum wb_recording {
    WB_RECORDING_WRITE, /* every change                       */
    WB_RECORDING_CLOSE, /* content from one close to the next */
    WB_RECORDING_NONE,  /* nothing                            */
    WB_RECORDINGS,
};

/* "close": as in the file. */
const char *wb_recording_name(enum wb_recording recording);
/* WB_RECORDINGS: it is none. */
enum wb_recording wb_recording_find(const char *name);

/* Sections that say it, in their order. */
struct wb_recording_rules {
    GPtrArray *list; /* of struct wb_path_rule with an enum wb_recording; NULL: none */
};

void wb_recording_rules_deinit(struct wb_recording_rules *rules);

/*
 * The rule for a path from the top of the tree: the last one that it matches, unless a directory above it is left out
 * (none), since what is in one is left out as well. NULL: what the mount's option says holds.
 */
const struct wb_path_rule *wb_recording_rules_find(const struct wb_recording_rules *rules, const char *path,
                                                   bool is_directory);
