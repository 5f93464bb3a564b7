/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

/* The paths by which the kernel finds a past state: NAME@TIME. */

#include <stdint.h>
#include "client/mount.h"
#include "wayback/error.h"
#include "wayback/when.h"

struct wb_moment {
    int64_t when;
    char *path;  /* relative to the mount's root_fd, e.g. "a/b@1763696000.000000000"; NULL: nothing was there */
    char *label; /* of the tools: the moment as the user wrote it, for NAME@TIME */
    struct wb_control_identity identity; /* of what was there */
};

void wb_moment_clear(struct wb_moment *moment);
#define _cleanup_moment_ __attribute__((cleanup(wb_moment_clear)))

/*
 * What `path` was at `when`. That nothing was there then is no failure: ret->path is NULL. That nothing ever was there
 * is one (-ENOENT). 0, or -errno with a line in `why`.
 */
int wb_moment_at(const struct wb_mount *mount, const char *path, int64_t when, struct wb_moment *ret,
                 struct wb_error *why);

/* The same for the time before its N-th most recent version or change: the file that it was, under the name that it had
 * then. `time` is no instant. */
int wb_moment_before(const struct wb_mount *mount, const char *path, const struct wb_time *time, struct wb_moment *ret,
                     struct wb_error *why);

/*
 * Whether the history reaches back to `when`; `text` is how the user wrote that. 0, or -ENODATA with a line in `why`,
 * because nothing recorded what there was before the history began.
 */
int wb_moment_known(const struct wb_mount *mount, const char *text, int64_t when, struct wb_error *why);

/*
 * Describes why `path` at `when` cannot be read, which failed with `error`: for a gap in the history, its time, its
 * reason and the nearest times that can be used. Returns `error`.
 */
int wb_moment_unknown(const struct wb_mount *mount, const char *path, int64_t when, int error, struct wb_error *why);

/* NAME@TIME as this mount writes it; g_free. */
char *wb_moment_entry(const struct wb_mount *mount, const char *name, const char *time);

/* dir/name@when for dir/name: that entry of what `dir` is now; g_free. */
char *wb_moment_shift(const struct wb_mount *mount, const char *path, int64_t when);

/*
 * The path of `path` as it was at `when`: what its directory, wherever that was then, had under the
 * name; else what was found under the whole of a longer part of the path. 0 with *ret (g_free) set,
 * -ENOENT where nothing was there, or -errno.
 */
int wb_moment_path(const struct wb_mount *mount, const char *path, int64_t when, char **ret);

/* Whether `text` is "today". *ret is 0:00 or, if the history began today, its begin. */
bool wb_time_today(const struct wb_mount *mount, const char *text, struct wb_time *ret);

/*
 * What TIME means for `path`: a time, else the moment of the snapshot of that name, if it covers the path, else "begin"
 * or "first", when the history began, or a time as people say it (wb_time_parse_free). `text` does not begin with a
 * mark. 0; -ENOENT: neither a time nor a snapshot here; -ENODATA: the snapshot in *snapshot (g_free) does not cover the
 * path.
 */
int wb_time_find(const struct wb_mount *mount, const char *path, const char *text, struct wb_time *ret,
                 struct wb_control_snapshot **snapshot);
