/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

/*
 * From a PATH as the user wrote it to an answering mount.
 *
 * PATH may be relative, gone, below gone directories, hold `..` or `NAME@TIME`. It is looked for,
 * in this order, in the Wayback mount that contains it; as a path in the source of a Wayback mount; in an
 * unmounted tree with a `.wayback` directory, which is then mounted privately (in a directory of
 * mode 0700, taken down at the end), so that all tools have one way of doing things.
 */

#include <stdbool.h>
#include "client/mount.h"

enum wb_mount_need {
    WB_MOUNT_READ,  /* the past is to be read   */
    WB_MOUNT_WRITE, /* the present is to change */
};

/* NULL after an error line. */
struct wb_place *wb_place_find(const char *path, enum wb_mount_need need);
struct wb_place *wb_place_free(struct wb_place *place);

static inline void wb_place_freep(struct wb_place **place)
{
    wb_place_free(*place);
}
#define _cleanup_place_ __attribute__((cleanup(wb_place_freep)))

/*
 * The mount of the present whose tree the absolute `path` is in, behind the mount point; *rest is the path in it. The
 * caller's; NULL: there is none.
 */
struct wb_mount *wb_mount_of_source(const GPtrArray *list, const char *path, const char **rest);

/*
 * Whether another directory has the name of the current one: a mount covers it (`cd work; wayback .`). The tools find
 * the mount by its path; all else that the user's shell does goes past it.
 */
bool wb_stands_below_mount(void);

/* The directory at or above `path` with a store, or with the signpost to one; g_free. NULL: none. */
char *wb_tree_above(const char *path);

/*
 * The mount by which the tree is changed now: `path` is a directory of it, or its source. A descriptor of it and its
 * reply to HELLO; -1: there is none.
 */
int wb_mount_of_tree(const char *path, struct wb_control_hello *ret);

/*
 * wb_server_open for a tool: the tree and the store behind the mount that `fd` is a directory of. 0, or WB_EXIT_FAILED
 * after an error line.
 */
int wb_mount_behind(const char *given, int fd, const struct wb_control_hello *hello, int *ret_tree, int *ret_store);

/*
 * For tools that work on whole trees: a mount stands for the tree behind it, which is reached through descriptors. Both
 * are replaced by paths of these, which hold until the next call; *store only where it is NULL, and known. 0, or
 * WB_EXIT_FAILED after an error line: `given` is only a part of a tree, or its server is not believed.
 */
int wb_tree_behind(const char *given, char **tree, char **store);

/* Whether the path exists at present, as seen in the mount: lstat(2). 0 or -errno. */
struct stat;
int wb_place_stat(const struct wb_place *place, struct stat *ret);

/* The program `wayback`: as WAYBACK_DAEMON says, beside us, or in PATH; g_free. NULL: not found. */
char *wb_private_daemon(void);

/* Takes all private mounts down; called at exit. */
void wb_private_unmount_all(void);
