/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

/* -o auto_remount: a process that does nothing but wait for the daemon, and mounts again where it died. */

#include "daemon/options/options.h"

/*
 * The daemon in a child of this process, which leaves the terminal and waits. `ready_fd`: where the first daemon says
 * that it has mounted. Returns the exit status once the file system is unmounted, or cannot be kept mounted.
 */
int wb_supervise(const struct wb_options *options, int ready_fd);
