/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

/* Requests from /dev/fuse: who reads them, and who else does while that one is busy. */

struct wb_loop;
struct wb_session;

/* NULL: no memory, or no threads. */
struct wb_loop *wb_loop_new(struct wb_session *session);
struct wb_loop *wb_loop_free(struct wb_loop *loop);

/* Serves until the file system is unmounted, or wb_loop_stop. 0 or -errno. */
int wb_loop_run(struct wb_loop *loop);

/* From another thread: no further request is read, those under way come to their end. */
void wb_loop_stop(struct wb_loop *loop);

/* The calling worker is about to wait for what only another request can bring: another reads meanwhile.
 * Does nothing in any other thread. */
void wb_loop_step_aside(void);
