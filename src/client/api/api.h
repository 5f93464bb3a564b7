/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

/* Declarations that only the files of this folder share: they implement <wayback/wayback.h>. */

#include "client/mount.h"
#include "wayback/error.h"
#include "wayback/wayback.h"

struct wb_client {
    struct wb_mount *mount;
    char *point; /* of the mount, without a slash at the end */
};

/* Keeps the description of a failure for wb_error_text: "path: text", or the text of the errno if `text` is NULL or
 * empty. `path` may be NULL. Returns `error`. */
int wb_client_fail(const char *path, int error, const char *text);

/* Converts a path of the caller to one relative to mount->root_fd (g_free). `change`: the path is going to be changed,
 * so symbolic links of other users are refused. 0, or -errno, which is kept for wb_error_text, as below. */
int wb_client_path(const struct wb_client *client, const char *path, bool change, char **ret);

/* Converts a path relative to mount->root_fd to an absolute one; g_free. */
char *wb_client_whole(const struct wb_client *client, const char *path);

/* Whether history has a state of `when`. `hello`: a new reply of wb_mount_refresh. 0; -EINVAL: a time in the future; or
 * -ENODATA: before the beginning of the history; these errors are kept, with `path`. */
int wb_client_time(const struct wb_client *client, const char *path, int64_t when,
                   const struct wb_control_hello *hello);

/* The path as it was at `when`, relative to mount->root_fd (g_free). 0, or -errno, which is kept. */
int wb_client_past(const struct wb_client *client, const char *path, int64_t when, char **ret);

/* No structure of the caller is larger, in any version: a larger `size` was not set by the caller. */
#define WB_CLIENT_SIZE_MAX 4096

/* Copies a result of `known` bytes to the structure of the caller, which has `size` bytes, except for the `size` at its
 * beginning. Bytes that the library does not know become 0. 0, or -EINVAL if no version of the structure has this size.
 */
int wb_client_give(void *to, size_t size, const void *from, size_t known);
