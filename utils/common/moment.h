/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

/*
 * --time and --change: from what the user wrote to one absolute instant, and to a path under
 * which the kernel finds what was there then.
 */

#include <stdbool.h>
#include "client/past_path.h"
#include "common/mount.h"
#include "wayback/when.h"

/* --change was not given; no number of a version. */
#define WB_CHANGE_NONE G_MININT

/* The options as given; at most one of the two. */
struct wb_moment_options {
    const char *time; /* --time TIME or NULL                                       */
    const char *shown; /* as the user wrote it; NULL: `time`                       */
    int change;       /* --change N or WB_CHANGE_NONE                              */
    const char *name; /* what errors call the time, where it is not "--time"; NULL */
};

/* Whether the options make sense, before anything is looked for. 0 or WB_EXIT_USAGE. */
int wb_moment_check(const struct wb_moment_options *options);

/*
 * Resolves the options for `place`, once: relative times and counts become an instant. Returns
 * 0, or the exit status to end with (after an error line). That nothing was there then is no
 * failure here: moment->path is NULL. That nothing ever was there is one.
 */
int wb_moment_resolve(const struct wb_place *place, const struct wb_moment_options *options,
                      struct wb_moment *ret);

/*
 * Whether the history of the mount reaches back to `when`; `text` is how the user wrote that. 0, or WB_EXIT_FAILED
 * after an error line, because nobody recorded what there was before the history began.
 */
int wb_moment_is_known(const struct wb_place *place, const char *text, int64_t when);
