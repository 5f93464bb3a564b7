/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Pruning: each request does a part of it, so that it can be interrupted and reports its progress. The session keeps a
 * pruning that has begun until it ends, or another one begins.
 */
#include "daemon/control/control.h"

#include "daemon/keeper/forget.h"
#include "wayback/when.h"
#include <errno.h>
#include <glib.h>
#include <unistd.h>

_Static_assert(sizeof(struct wb_control_pruned) <= WB_CONTROL_DATA_MAX, "a reply fits");

/* A request does as many steps as there is time for, in microseconds. */
#define TURN 200000

/* The caller went away, or was interrupted; or the mount ends. */
static bool is_over(void *data)
{
    const struct wb_session *session = data;

    return fuse_req_interrupted(session->pruner->req) || fuse_session_exited(session->fuse);
}

static int begin(const struct wb_request *request, struct wb_control_pruned *reply)
{
    struct wb_session *session = request->session;
    struct wb_prune_options options;
    struct wb_error why = {""};
    int r;

    wb_forget_init(session, &options);
    options.before = request->in->until;
    options.dry_run = request->in->flags & WB_CONTROL_PRUNE_DRY;
    options.stop = is_over;
    session->prune = wb_prune_free(session->prune);
    session->prune_step = 0;
    r = wb_prune_begin(&session->prune, session->store, &options, &reply->snapshots, &why);
    if (r == -EEXIST && reply->snapshots > 0)
        g_strlcpy(reply->snapshot, why.text, sizeof(reply->snapshot));
    if (r < 0 || options.dry_run)
        return r;
    wb_forget_published(session);
    return 0;
}

static int go_on(struct wb_session *session, struct wb_control_pruned *reply)
{
    int64_t until = g_get_monotonic_time() + TURN;
    struct wb_prune_count count = {0};
    int r = 0;

    while (r == 0 && session->prune_step < WB_PRUNE_STEPS && g_get_monotonic_time() < until) {
        r = wb_prune_step(session->prune, session->prune_step, &count);
        if (r == 0)
            session->prune_step++;
    }
    reply->logs = count.logs;
    reply->changed = count.changed;
    reply->log_bytes = count.log_bytes;
    reply->image_bytes = count.image_bytes;
    reply->body_bytes = count.body_bytes;
    reply->bodies = count.bodies;
    reply->kept = count.kept;
    reply->error = (uint32_t)-count.error;
    reply->permille = session->prune_step * 1000 / WB_PRUNE_STEPS;
    return r;
}

static int prune(const struct wb_request *request, struct wb_control *out)
{
    struct wb_control_pruned *reply = (struct wb_control_pruned *)(void *)out->data;
    struct wb_session *session = request->session;
    const struct wb_control *in = request->in;
    int r = 0;

    if (in->cursor == 0)
        r = begin(request, reply);
    else if (!session->prune || in->cursor != session->prune_step + 1u)
        r = -ECANCELED; /* another one took its place */
    if (r == -EEXIST)
        return 0;
    if (r == 0)
        r = go_on(session, reply);
    out->cursor = session->prune_step + 1u;
    out->count = r == 0 && session->prune_step < WB_PRUNE_STEPS;
    if (out->count == 0)
        session->prune = wb_prune_free(session->prune);
    reply->horizon = session->store->header.created;
    if (in->flags & WB_CONTROL_PRUNE_DRY)
        reply->horizon = MAX(reply->horizon, in->until);
    return r;
}

int wb_control_prune(const struct wb_request *request, struct wb_control *out)
{
    struct wb_session *session = request->session;
    int r;

    if (request->in->until <= 0 || request->in->cursor > WB_PRUNE_STEPS)
        return -EINVAL;
    if (pthread_mutex_trylock(&session->prune_lock) != 0)
        return -EBUSY;
    session->pruner = request;
    r = prune(request, out);
    session->pruner = NULL;
    pthread_mutex_unlock(&session->prune_lock);
    return r;
}
