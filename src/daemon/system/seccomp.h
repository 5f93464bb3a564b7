/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

#include <signal.h>
#include <stdbool.h>

/*
 * A filter of system calls (seccomp(2)): from here on the calling thread, and all that are made after it, can make only
 * those that serving needs. Others fail with ENOSYS, as on a kernel that does not have them: a daemon that holds
 * everybody's files is not killed for a call that nobody thought of.
 *
 * Each number that was refused is written down once, by whoever waits for WB_SECCOMP_REFUSED.
 */

/* Sent to this process when a call was refused. To be blocked in all threads. */
#define WB_SECCOMP_REFUSED SIGUSR2

/* Needs no_new_privs or CAP_SYS_ADMIN. `io_uring`: requests may come through it. 0 or -errno. */
int wb_seccomp_enter(bool io_uring);

/* Reports the calls that were refused since the last time. */
void wb_seccomp_report(void);
