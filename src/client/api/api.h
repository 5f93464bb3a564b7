/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

/* The parts of <wayback/wayback.h>: what its files share. */

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

/* A path as the caller gave it, as one relative to mount->root_fd (g_free); `change`: something is to be changed there.
 * 0, or -errno, which is kept. */
int wb_client_path(const struct wb_client *client, const char *path, bool change, char **ret);

/* A path relative to mount->root_fd as system calls find it from anywhere; g_free. */
char *wb_client_whole(const struct wb_client *client, const char *path);

/* Whether history has a state of `when`, by a new reply of wb_mount_refresh. 0; -EINVAL: a time in the future; or
 * -ENODATA: before the beginning; which are kept, with `path`. */
int wb_client_time(const struct wb_client *client, const char *path, int64_t when,
                   const struct wb_control_hello *hello);

/* The path as it was at `when`, relative to mount->root_fd (g_free). 0, or -errno, which is kept. */
int wb_client_past(const struct wb_client *client, const char *path, int64_t when, char **ret);

/* No structure of the caller is larger, in any version: more is a `size` that was not set. */
#define WB_CLIENT_SIZE_MAX 4096

/* Copies the first `size` bytes of a result, of which the library knows `known`; the rest becomes 0. 0, or -EINVAL if
 * no version of the structure has this `size`. */
int wb_client_give(void *to, size_t size, const void *from, size_t known);
