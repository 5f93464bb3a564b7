/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

/*
 * onfull=prune: a change that cannot be recorded for want of room is made once more when the keeper has made some.
 *
 * The keeper needs the tree for that, which nobody may have who waits for it. An operation refuses when it has let go
 * of all locks, and what could not be recorded was not done. So its refusal is held back in the thread of the request,
 * the keeper is waited for, and the operation begins anew:
 *
 *     WB_RETRY_ON_ENOSPC(session, req, wb_op_write(session, req, ...));
 *
 * Neither the number of times nor the time is without bounds. Room that SRC lacks is none of this: a file that is too
 * large for the disk would take all of the history with it.
 */

#include "daemon/core/session.h"
#include "daemon/keeper/keeper.h"
#include <errno.h>

/* Records could not be written, or so says `r`, which is returned. */
int wb_enospc_retry_recorded(int r);

/*
 * The same of what records and changes names in one: `unrecorded`: it could not record. Else it lacks room in SRC,
 * which is that of the store where both are on one device; a quota may be somebody's there.
 */
int wb_enospc_retry_made(struct wb_session *session, bool unrecorded, int r);

/* The request is about the past: the state of this moment must not go for it. */
void wb_enospc_retry_about(int64_t when);

/* As fuse_reply_err, unless the operation may be called again. The last thing that it does. */
void wb_enospc_retry_reply(fuse_req_t req, int error);

void wb_enospc_retry_begin(struct wb_session *session);
/* Whether it is to be called again. Else it has replied, and there is no `req` any more. */
bool wb_enospc_retry_is_due(fuse_req_t req);
/* The same for who replies himself: what he does came to `r`. Until it says no, as often as he is to try. */
bool wb_enospc_retry_helps(fuse_req_t req, int r);

#define WB_RETRY_ON_ENOSPC(session, req, call)                                                                         \
    do {                                                                                                               \
        wb_enospc_retry_begin(session);                                                                                \
        do {                                                                                                           \
            call;                                                                                                      \
        } while (wb_enospc_retry_is_due(req));                                                                         \
    } while (0)

/* What this thread writes takes room as that user's (base/spend.h), where a part of the disk is kept for root. */
void wb_enospc_retry_spend_for(const struct wb_session *session, uid_t uid);

/*
 * Whether all that is left there is kept for root, and the caller is not root: for changes that need a permission in
 * the file system below, so that they cannot be made as the caller.
 */
bool wb_enospc_retry_is_kept_for_root(const struct wb_session *session, fuse_req_t req);

/*
 * The same for what makes changes only: it may be held back before (wb_keeper_throttle), or refused for the size of
 * the caller's history (wb_keeper_may_spend), and takes the caller's room.
 */
#define WB_CHANGE(session, req, call)                                                                                  \
    do {                                                                                                               \
        wb_keeper_throttle(session);                                                                                   \
        if (!wb_keeper_may_spend(session, fuse_req_ctx(req)->uid)) {                                                   \
            fuse_reply_err(req, EDQUOT);                                                                               \
            break;                                                                                                     \
        }                                                                                                              \
        wb_enospc_retry_spend_for(session, fuse_req_ctx(req)->uid);                                                    \
        WB_RETRY_ON_ENOSPC(session, req, call);                                                                        \
        wb_enospc_retry_spend_for(NULL, 0);                                                                            \
    } while (0)
