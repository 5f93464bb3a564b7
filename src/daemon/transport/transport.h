/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

/*
 * How requests come from the kernel and replies return to it: by read(2) and writev(2) of /dev/fuse (the classic
 * transport), or, if the kernel offers it, through io_uring (ring.h). libfuse decodes requests and encodes replies in
 * both cases.
 */

#include "daemon/core/session.h"

/* Whether io_uring can be used here: 0, or -errno with the reason in `why`. Mounts nothing. */
int wb_transport_check(struct wb_error *why);

/*
 * Once the session is mounted, before the first request is read. `threads`: how many requests of one CPU may be in work
 * at a time. 0, or -errno with the reason in `why`, if the options demand io_uring and it cannot be used.
 */
int wb_transport_begin(struct wb_session *session, unsigned threads, struct wb_error *why);

/* Ends the threads of the transport. Requests that wait in a lane may still be replied to. */
void wb_transport_stop(struct wb_session *session);

/* Once the lanes have replied: sends these replies, and gives up the connection. */
void wb_transport_close(struct wb_session *session);

/* Once nothing replies any more. */
void wb_transport_end(struct wb_session *session);

/* Whether requests come through io_uring. Constant from the first request on. */
bool wb_transport_is_io_uring(const struct wb_session *session);
