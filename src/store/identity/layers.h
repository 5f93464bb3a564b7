/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

/*
 * Overlayfs, which containers have for a disk: what an image brought lies in lower layers, and becomes another inode,
 * with another birth, at its first change. Records made before that speak of a file that is not there any more, so the
 * past would be lost in silence; and a directory that also lies below cannot be moved, so not be buried either. What
 * was made in the upper layer alone is as good as on its file system.
 */
#include "wayback/error.h"
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

/* Whether `fd` is on an overlayfs. */
bool wb_layers_are_there(int fd);

/*
 * Of an inode there: whether it is a directory that lies in a lower layer, too. Such a directory tells one link
 * (fs/overlayfs/inode.c, ovl_getattr), and so do all on a file system that counts no subdirectories, such as btrfs:
 * these cannot be told apart.
 */
bool wb_layers_merge(mode_t mode, uint64_t nlink);

/*
 * Whether the tree of `src_fd`, a directory open for reading, can have a history. 0 also on other file systems;
 * -EOPNOTSUPP with a line in `why`; -errno. May move the directory into the upper layer, where its first change would.
 */
int wb_layers_check(int src_fd, struct wb_problem *why);
