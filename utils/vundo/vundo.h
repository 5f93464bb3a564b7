/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

/* The parts of vundo: which restore (choose.c), its list (list.c), and how it is undone (invert.c). */

#include "client/revert/revert.h"
#include "common/mount.h"
#include "restores.h"

struct vundo {
    const struct wb_place *place; /* as it was given; "." by default */
    GPtrArray *restores;
    const char *id;               /* --op, or NULL */
    bool redo, force, dry, json, verbose, sync, ask;
};

/* How a path relative to root_fd is shown: as it was given, if it is below PATH. g_free. */
char *vundo_shown(const struct vundo *vundo, const char *path);

/* ---- choose.c ------------------------------------------------------------------------------------ */

/* The restore to undo, or the undo to take back. NULL after an error line. */
struct restore *choose(const struct vundo *vundo);

/* ---- list.c -------------------------------------------------------------------------------------- */

void list(const struct vundo *vundo);

/* "+3 -1 ~2": names that exist since then, that do not any more, and others that were changed. g_free. */
char *list_counts(const struct restore *restore);

/* ---- invert.c ------------------------------------------------------------------------------------ */

/* Whether an undo or redo of `restore` was interrupted, so that running it again would do the rest. */
bool is_unfinished(const struct vundo *vundo, struct restore *restore);

/* Puts everything that the restore changed back to the time before it. Failures are reported. */
void invert(const struct vundo *vundo, struct restore *restore);
