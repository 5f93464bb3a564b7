/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

/* Which state of which path: from PATH or PATH@TIME and the options to an entry that can be read. */

#include "common/moment.h"
#include "common/mount.h"

struct source {
    struct wb_place *place;
    struct wb_moment moment;
    bool in_path;  /* the time was in PATH        */
    bool present;  /* it is the present state     */
};

/* `present`: the present state if no time is given. 0, or an exit status after an error line. */
int source_find(struct source *source, const char *path, const struct wb_moment_options *options, bool present);
void source_clear(struct source *source);

/* The path of a copy beside the present file, which has the time in its name: "f.2026-11-25T03.37". g_free. NULL
 * after an error line. */
char *source_beside(const struct source *source);
