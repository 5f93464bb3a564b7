/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

/*
 * Whether the process that made a request lives where the daemon does: in the same user namespace and the same mount
 * namespace. A user number alone does not say so: uid 0 in a container is 0 here, too.
 *
 * The kernel does not let a thread end while the daemon has a request of it that is not answered. So its number stands
 * for it until then, and for no other process, unless the connection to the kernel was aborted (see docs/security.md).
 */

#include <sys/types.h>

/*
 * `caller`: the thread, as fuse_req_ctx gives it; 0 where it is in no process namespace that the daemon can see. 1; 0;
 * or -errno where that cannot be found out, which must count as no.
 */
int wb_caller_is_at_home(pid_t caller);
