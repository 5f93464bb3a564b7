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

/* The path as it was at `when`, relative to mount->root_fd (g_free). 0, or -errno, which is kept. */
int wb_client_past(const struct wb_client *client, const char *path, int64_t when, char **ret);

/* Copies the first `size` bytes of a result, of which the library knows `known`; the rest becomes 0. 0, or -EINVAL if
 * `size` is too small for any version of the structure. */
int wb_client_give(void *to, size_t size, const void *from, size_t known);
