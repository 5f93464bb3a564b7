/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

/*
 * Requests that nobody waits for. The kernel does not let a thread end before its request is answered, not even by
 * SIGKILL, so a look-back that reads a long history would hold its process for as long. Only a thread that is going to
 * end in any case counts: for one that handles a signal, stat(2) must not fail because of that.
 */

#include "daemon/core/session.h"

/* What this thread does from now on is done for `req`, and ends with -EINTR where it is abandoned; NULL: for nobody. */
void wb_abandoned_watch(fuse_req_t req);
