/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

/*
 * One setting for some paths, as sections of wayback.conf say it: `[path "*.o"]` with a value. The last section that a
 * path matches decides. Whether a path is recorded (recording.h) and how it is packed (compaction.h) are such settings.
 */

#include "wayback/pattern.h"
#include <glib.h>
#include <stdbool.h>

struct wb_path_rule {
    char *title; /* `path "*.o"`, as it was written */
    unsigned line;
    struct wb_patterns *patterns;
    unsigned setting; /* a value of the enumeration that the list is of */
};

/* A new rule behind the others; `patterns` is taken. `rules`: of struct wb_path_rule, in their order; NULL: none. */
void wb_path_rules_add(GPtrArray **rules, const char *title, unsigned line, struct wb_patterns *patterns,
                       unsigned setting);

/* The last rule that a path from the top of the tree matches, or NULL. */
const struct wb_path_rule *wb_path_rules_find(const GPtrArray *rules, const char *path, bool is_directory);
