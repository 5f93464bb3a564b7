/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

/* vrevert --command: the part of a tree that some commands changed, and nothing else changed since. */

#include "common/changed.h"
#include "common/mount.h"
#include <glib.h>

struct by_command {
    struct wb_changed *changed; /* paths to revert, relative to the root */
    GPtrArray *kept;            /* paths below PATH that another command changed, too */
    int64_t first;              /* the oldest change of the commands; 0: there is none */
};

/*
 * Reads the changes of `place` since `since` (0: all). `commands` ends with NULL; a command matches if it contains one
 * of them. 0, or the exit status after an error line. by_command_clear in any case.
 */
int by_command_find(const struct wb_place *place, int64_t since, const char *const *commands, struct by_command *ret);
void by_command_clear(struct by_command *by_command);
