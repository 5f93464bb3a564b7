/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

/*
 * Overlayfs, the usual root of containers: the files of an image are in lower layers, and become other inodes with
 * other births at their first change. Records made before that refer to a file that no longer exists, so the past would
 * be lost silently; and a directory that also exists in a lower layer cannot be renamed, and so not be moved to the
 * graveyard. Files created in the upper layer alone behave as on its own file system.
 */
#include "wayback/error.h"
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

/* Whether `fd` is on an overlayfs. */
bool wb_layers_are_there(int fd);

/*
 * Whether an inode there is a directory that also exists in a lower layer. Such a directory has one link
 * (fs/overlayfs/inode.c, ovl_getattr), and so have all directories of a file system that does not count subdirectories,
 * such as btrfs: the two cannot be distinguished.
 */
bool wb_layers_merge(mode_t mode, uint64_t nlink);

/*
 * Whether the tree of `src_fd`, a directory open for reading, can have a history. Returns 0 also on other file systems;
 * -EOPNOTSUPP with a line in `why`; -errno. May copy the directory up into the upper layer, as its first change would.
 */
int wb_layers_check(int src_fd, struct wb_error *why);
