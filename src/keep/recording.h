/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

/*
 * Which changes of which paths are recorded, as settings: `history = write | close | none` in the sections of
 * wayback.conf. `keep/config` reads them, daemon/recording.c applies them.
 */

#include "wayback/pattern.h"
#include <glib.h>
#include <stdbool.h>

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

struct wb_recording_rule {
    char *title; /* `path "*.o"`, as it was written */
    unsigned line;
    struct wb_patterns *patterns;
    enum wb_recording recording;
};

/* Sections that say it, in their order. */
struct wb_recording_rules {
    GPtrArray *list; /* of struct wb_recording_rule; NULL: none */
};

void wb_recording_rules_deinit(struct wb_recording_rules *rules);

/* A new rule behind the others; its patterns are taken. */
void wb_recording_rules_add(struct wb_recording_rules *rules, const char *title, unsigned line,
                            struct wb_patterns *patterns, enum wb_recording recording);

/*
 * The rule for a path from the top of the tree: the last one that it matches, unless a directory above it is left out
 * (none), since what is in one is left out as well. NULL: what the mount's option says holds.
 */
const struct wb_recording_rule *wb_recording_rules_find(const struct wb_recording_rules *rules, const char *path,
                                                        bool is_directory);
