/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "daemon/keeper/enospc_retry.h"

#include "base/spend.h"
#include <errno.h>
#include <glib.h>
#include <sys/statvfs.h>

/* What gives way may be too little, and others want it as well. */
#define TIMES 16
#define PATIENCE_US (60 * G_USEC_PER_SEC)

/* What the request of this thread has come to. */
static _Thread_local struct {
    struct wb_session *session;
    bool may_wait;
    bool lacks_room; /* in the store */
    int error;       /* held back; 0: it has replied */
    int64_t about;   /* the moment whose state it wants; 0: none */
    unsigned times;
    int64_t until;
    struct wb_space_waiter waiter; /* once it has waited */
} attempt;

static bool is_want_of_room(int error)
{
    return error == ENOSPC || error == EDQUOT;
}

int wb_enospc_retry_recorded(int r)
{
    if (is_want_of_room(-r))
        attempt.lacks_room = true;
    return r;
}

int wb_enospc_retry_made(struct wb_session *session, bool unrecorded, int r)
{
    if (unrecorded || (r == -ENOSPC && wb_keeper_is_with_tree(session)))
        wb_enospc_retry_recorded(r);
    return r;
}

void wb_enospc_retry_about(int64_t when)
{
    attempt.about = when;
}

void wb_enospc_retry_reply(fuse_req_t req, int error)
{
    if (attempt.may_wait && attempt.lacks_room && is_want_of_room(error))
        attempt.error = error;
    else
        fuse_reply_err(req, error);
}

void wb_enospc_retry_spend_for(const struct wb_session *session, uid_t uid)
{
    wb_spend_for(session && session->has_reserve ? uid : 0);
}

bool wb_enospc_retry_is_kept_for_root(const struct wb_session *session, fuse_req_t req)
{
    struct statvfs device;

    return session->has_reserve && fuse_req_ctx(req)->uid != 0 && fstatvfs(session->src_fd, &device) == 0 &&
           device.f_bavail == 0;
}

void wb_enospc_retry_begin(struct wb_session *session)
{
    attempt.session = session;
    attempt.may_wait = session->options->prunes && session->recording;
    attempt.lacks_room = false;
    attempt.error = 0;
    attempt.about = 0;
    attempt.times = 0;
    attempt.until = 0;
}

/* Whether room was made for it. */
static bool wait_for_room(fuse_req_t req)
{
    if (attempt.times++ == 0) {
        attempt.until = g_get_monotonic_time() + PATIENCE_US;
        wb_space_waiter_add(attempt.session, &attempt.waiter, attempt.about);
    }
    attempt.lacks_room = false;
    attempt.error = 0;
    return attempt.times <= TIMES && !fuse_req_interrupted(req) &&
           wb_keeper_make_room(attempt.session, &attempt.waiter, attempt.until);
}

/* What follows in this thread, and is not called again, replies by itself. */
static void end(void)
{
    attempt.may_wait = false;
    if (attempt.times > 0)
        wb_space_waiter_remove(attempt.session, &attempt.waiter);
    attempt.times = 0;
}

bool wb_enospc_retry_is_due(fuse_req_t req)
{
    int error = attempt.error;

    if (error != 0 && wait_for_room(req))
        return true;
    end();
    if (error != 0)
        fuse_reply_err(req, error);
    return false;
}

bool wb_enospc_retry_helps(fuse_req_t req, int r)
{
    if (attempt.may_wait && attempt.lacks_room && is_want_of_room(-r) && wait_for_room(req))
        return true;
    end();
    return false;
}
