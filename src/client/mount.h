/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

/* Finds the mounts of this machine and opens a Wayback mount for requests. */

#include <glib.h>
#include <stdbool.h>
#include "client/control.h"
#include "wayback/mounts.h"

/* One that is for users: a layer of a branch is not, which is listed until its overlay is mounted. */
bool wb_listed_is_wayback(const struct wb_listed *listed);

/* The mount that contains the absolute `path`; not one that another mount covers. */
const struct wb_listed *wb_listed_of(const GPtrArray *list, const char *path);

struct wb_mount {
    int root_fd;   /* a directory of the mount; paths of places are relative to it          */
    char *point;   /* path of root_fd, as users see it                                      */
    char *prefix;  /* path of root_fd from the root of the file system, "" if it is the root */
    struct wb_control_hello hello;
    char at_sign;  /* the mark in NAME@TIME                                                 */
    struct wb_private *private; /* of the tools (common/mount.h): they made it; NULL: somebody else's mount */
};

/* A PATH found: which mount, and where in it. */
struct wb_place {
    struct wb_mount *mount; /* borrowed */
    char *given;            /* as the user wrote it, without trailing slashes */
    char *path;             /* relative to mount->root_fd, "" for the directory itself */
};

/*
 * Opens a directory of the mount that answers requests: its root or, if the user may not read that, the first
 * directory on the way to `path` that can be opened. NULL with *error (an errno) set.
 */
struct wb_mount *wb_mount_open(const struct wb_listed *listed, const char *path, int *error);

/* The mount of which `fd` is a directory; takes over `fd`. */
struct wb_mount *wb_mount_new(int fd, const char *point, const char *prefix, const struct wb_control_hello *hello);
struct wb_mount *wb_mount_free(struct wb_mount *mount);

/* Asks the daemon again, also for the beginning of the history and the present in mount->hello. 0 or -errno. */
int wb_mount_refresh(struct wb_mount *mount, struct wb_control_hello *ret);

/* The present by the clock of the store: if the wall clock was set back, it is not before any change that the daemon
 * had recorded when it was asked last. */
int64_t wb_mount_now(const struct wb_mount *mount);
