/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

/* A session from its beginning to its end, in this process or in one of its own. */

#include "daemon/core/session.h"
#include <signal.h>

enum { WB_RUN_DONE = 0, WB_RUN_FAILED = 1, WB_RUN_USAGE = 2 };

/* One line on standard error. Returns `status`. */
int wb_run_complain(const struct wb_error *why, int status);

/* Only checks whether SRC can be mounted at MNT (--dry-run). Returns the exit status. */
int wb_run_check(const struct wb_options *options);

/*
 * Opens, mounts and serves until it is unmounted; errors are reported on standard error. Once it is mounted, the path
 * of the mount is written to `ready_fd` (-1: nowhere), which is closed; in the background, standard input and output
 * are detached before that. Returns the exit status.
 */
int wb_run(const struct wb_options *options, int ready_fd);

/* The same in a child; *ret_fd: where it says that it has mounted. Its process id, or -errno. */
pid_t wb_run_start(const struct wb_options *options, int *ret_fd);

/* The signals that a process waiting for daemons must handle: SIGCHLD, and those that are meant for the daemons. */
void wb_run_signals(sigset_t *set);

/* Reads what comes from the child and tries the mount: 0, or -1 after a line on standard error. */
int wb_run_wait(int fd);
