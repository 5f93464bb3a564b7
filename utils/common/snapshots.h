/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

/*
 * Snapshots as tools see them: the requests of <wayback/control.h> as functions, and times that may be the
 * name of one. Results are 0 or a negative errno unless said otherwise.
 */

#include <glib.h>
#include "common/control.h"
#include "common/mount.h"
#include "wayback/snapshot.h"
#include "wayback/when.h"

/* The strings of an entry. */
static inline const char *wb_snapshot_name(const struct wb_control_snapshot *snapshot)
{
    return snapshot->strings;
}

static inline const char *wb_snapshot_text(const struct wb_control_snapshot *snapshot)
{
    return snapshot->strings + snapshot->text;
}

static inline const char *wb_snapshot_path(const struct wb_control_snapshot *snapshot)
{
    return snapshot->strings + snapshot->path;
}

/*
 * All of them, oldest first, or those of that name (`name` NULL: all), in *ret: an array of struct
 * wb_control_snapshot *, g_ptr_array_unref. `path`: COVERS is said of it.
 */
int wb_snapshot_list(int dir_fd, const char *path, const char *name, GPtrArray **ret);

/* Of several of one name (not none): what FILE@NAME means; and what renaming and deleting are about. */
const struct wb_control_snapshot *wb_snapshot_meant(const GPtrArray *found);
const struct wb_control_snapshot *wb_snapshot_to_change(const GPtrArray *found);

/* `path`: the directory it is to be of. *ret to g_free. */
int wb_snapshot_create(int dir_fd, const char *path, const char *name, const char *text,
                       struct wb_control_snapshot **ret);
int wb_snapshot_rename(int dir_fd, const char *name, const char *new_name);
int wb_snapshot_delete(int dir_fd, const char *name);

/* What was open for writing then (g_strfreev); *ret_unnamed: how many more, not noted or not to be seen. */
int wb_snapshot_files(int dir_fd, const char *name, char ***ret, uint64_t *ret_unnamed);

/* ---- a TIME on the command line -------------------------------------------------------------- */

/*
 * Before any mount is known: whether `text` is a time or may be the name of a snapshot. 0, or WB_EXIT_USAGE after
 * saying why not.
 */
int wb_time_check(const char *option, const char *text);

/* TIME without the mark that it may begin with, '@' or that of the mount. */
const char *wb_time_text(const struct wb_place *place, const char *text);

/*
 * What `text` means for `place`: a time, else the moment of the snapshot of that name in the mount, if it says anything
 * of the place, else a time as people say it (wb_time_parse_free). 0, or WB_EXIT_USAGE after saying why not.
 */
int wb_time_of(const struct wb_place *place, const char *option, const char *text, struct wb_time *ret);

/*
 * The instants that --since and --until mean for `place`, 0 for one that is not given (NULL). `place` NULL: none is
 * known yet; then this looks whether they can be instants. `limit`: the option to use for a number of changes. 0, or
 * WB_EXIT_USAGE after saying why not.
 */
int wb_time_range(const struct wb_place *place, const char *since_text, const char *until_text, const char *limit,
                  int64_t *ret_since, int64_t *ret_until);

/*
 * The past moment that an option means. First with `place` NULL, before any mount is known: *ret is the moment, or 0
 * where the mount has to say, since `text` may be the name of a snapshot. Then for each place: a moment that is known
 * already stays the same for all of them. 0, or WB_EXIT_USAGE after saying why not.
 */
int wb_time_past(const struct wb_place *place, const char *option, const char *text, int64_t *ret);

/* Up to five names that resemble `name`, "a, b, c", or NULL; g_free. `snapshots`: of wb_snapshot_list. */
char *wb_snapshot_similar(const GPtrArray *snapshots, const char *name);
