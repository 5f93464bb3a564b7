/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

/*
 * history=close: the content of a file that somebody has open for writing is recorded in stages
 * (capture/stage.h). One begins with the first change and ends when a descriptor is closed (FLUSH, RELEASE), at
 * fsync, and before anything else is recorded of the file: its attributes, its names.
 *
 * FLUSH comes from each close(2), also of a duplicate, and is waited for; RELEASE comes after the last one, and
 * close(2) does not wait for it. Ending at FLUSH is what makes the new version be there when close(2) returns.
 */

#include "capture/stage.h"
#include "daemon/live/mutation.h"

/* Whether any file may have a stage. */
static inline bool wb_stages_may_be(const struct wb_session *session)
{
    return session->by_close || atomic_load(&session->rules.closes);
}

/*
 * Ends the stage of the node, if there is one. 0 or -errno; then what was to come must not be done, and the stage
 * is overdue: it lasts until its end can be written, which is tried again before anything else is recorded of the
 * file, before lists are shown, and every few seconds.
 */
int wb_stage_end_mutation(struct wb_mutation *mutation);

/* Tries again to end what is overdue. Without locks held; costs nothing where there is none. */
void wb_stages_retry(struct wb_session *session);

/* The same with ns_lock held shared and inode->lock held, for names; `inode` may be NULL. */
int wb_stage_end_locked(struct wb_session *session, struct wb_inode *inode);

/* A descriptor was closed, or fsync asked for. `fd` is any descriptor of it. */
int wb_stage_end_now(struct wb_session *session, struct wb_inode *inode, int fd);

/* The last handle was let go of; by now there may be another, and the stage may be its. */
int wb_stage_end_unwritten(struct wb_session *session, struct wb_inode *inode, int fd);

/* All of them. With ns_lock held exclusively, or by the last thread. Stages that cannot be ended stay in the table. */
void wb_stages_end_all(struct wb_session *session);

/* The same at the end of the session. */
void wb_stages_deinit(struct wb_session *session);

void wb_op_flush(struct wb_session *session, fuse_req_t req, struct wb_inode *inode, struct wb_handle *handle);
