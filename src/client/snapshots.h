/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

/* Snapshots: the requests of <wayback/control.h> as functions. Results are 0 or a negative errno. */

#include <glib.h>
#include "client/control.h"

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
int wb_request_snapshot_list(int dir_fd, const char *path, const char *name, GPtrArray **ret);

/* Of several of one name (not none): what FILE@NAME means; and what renaming and deleting are about. */
const struct wb_control_snapshot *wb_snapshot_meant(const GPtrArray *found);
const struct wb_control_snapshot *wb_snapshot_to_change(const GPtrArray *found);

/* `path`: the directory it is to be of. *ret to g_free. */
int wb_request_snapshot_create(int dir_fd, const char *path, const char *name, const char *text,
                       struct wb_control_snapshot **ret);
int wb_request_snapshot_rename(int dir_fd, const char *name, const char *new_name);
int wb_request_snapshot_delete(int dir_fd, const char *name);

/* What was open for writing then (g_strfreev); *ret_unnamed: how many more, not noted or not to be seen. */
int wb_request_snapshot_files(int dir_fd, const char *name, char ***ret, uint64_t *ret_unnamed);
