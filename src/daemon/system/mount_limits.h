/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

/*
 * Limits on what files can do on a mount of root's: whether set-id bits and file capabilities count (suid), whether
 * device nodes open (dev), and whether programs run (exec). The mount shows the tree and the history in another place,
 * so it must not allow more than the mounts that they lie in.
 */

#include "daemon/options/options.h"

struct wb_mount_limits {
    bool nosuid, nodev, noexec;
};

/* Adds the limits of the mount that `fd` was opened in, and nosuid and nodev if `fd` is not root's. 0 or -errno. */
int wb_mount_limits_add(struct wb_mount_limits *limits, int fd);

/* Adds those of a mount that shows a moment (at=, branch=), and applies what the user asked for by name. */
void wb_mount_limits_finish(struct wb_mount_limits *limits, const struct wb_options *options);
