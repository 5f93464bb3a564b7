/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

/*
 * Paths through time: the names that lead to a directory, and the directories they led to before it.
 *
 * A directory that was removed and made again is a new object with no past of its own. Where the object has nothing to
 * say of a moment, its path decides: the directory that had the same names below the root then.
 */

#include "history/state/bindings.h"

/*
 * The directory at `when` that had the path of `dir`, followed by `name` ("" for none). 0; WB_ABSENT where the path
 * led to no directory; or -errno.
 */
int wb_path_at(struct wb_history *history, const struct wb_revision *dir, const char *name, int64_t when,
               struct wb_revision **ret);

/* Since when the names of `dir` have led to it, as of its own moment; 0: since before the history. 0 or -errno. */
int wb_path_since(struct wb_bindings *bindings, const struct wb_revision *dir, int64_t *ret);

/*
 * The newest directory before *before to which that path led, as it was last: *before becomes the first moment at
 * which the path did not lead to it any more. 0, WB_ABSENT where there is none, or -errno.
 */
int wb_path_previous(struct wb_history *history, struct wb_bindings *bindings, const struct wb_revision *dir,
                     const char *name, int64_t *before, struct wb_revision **ret);
