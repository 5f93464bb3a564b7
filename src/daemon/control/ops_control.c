/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * The requests beyond POSIX: which callers may make them, their dispatch, and the reply.
 *
 * Requests that change something invalidate names and attributes in the kernel's cache before they reply. For that, the
 * kernel takes locks that another request may hold which waits for one of our workers. So they run in threads of their
 * own (lane.h), as do those that look back and may take long.
 */
#include "daemon/control/control.h"
#include "daemon/caller/abandoned.h"
#include "daemon/keeper/enospc_retry.h"
#include "daemon/live/stage.h"
#include "daemon/past/past.h"
#include "daemon/past/past_node.h"
#include "daemon/transport/transport.h"

#include "wayback/when.h"
#include <errno.h>
#include <glib.h>
#include <string.h>
#include <unistd.h>

_Static_assert(sizeof(struct wb_control_hello) <= WB_CONTROL_DATA_MAX, "a reply fits");
_Static_assert(sizeof(struct wb_control_identity) <= WB_CONTROL_DATA_MAX, "a reply fits");

int wb_control_hello(const struct wb_request *request, struct wb_control *out)
{
    struct wb_session *session = request->session;
    struct wb_control_hello *reply = (struct wb_control_hello *)(void *)out->data;
    const struct fuse_ctx *caller = fuse_req_ctx(request->req);
    bool keeper = wb_control_is_keeper(request);

    /* A tool that a shell executed in its own place: its changes are not the shell's, however soon they follow. */
    if (session->store)
        wb_store_actor_expire(session->store, caller->uid, caller->gid, (uint32_t)caller->pid);

    /* Paths and descriptors of the daemon are for those who may open them. */
    if (keeper && g_strlcpy(reply->source, session->source, sizeof(reply->source)) >= sizeof(reply->source))
        return -ENAMETOOLONG;
    if (session->store)
        memcpy(reply->uuid, session->store->header.uuid, sizeof(reply->uuid));
    reply->history = session->history != NULL;
    reply->read_only = session->options->read_only;
    reply->created = session->history ? session->store->header.created : 0;
    reply->moment = session->moment == WB_WHEN_PRESENT ? 0 : session->moment;
    reply->now = session->store ? wb_store_now(session->store) : wb_when_now();
    reply->no_handles = session->no_handles;
    reply->io_uring = wb_transport_is_io_uring(session);
    reply->at_sign = (uint32_t)session->options->at_sign;
    reply->pid = keeper ? (uint32_t)getpid() : 0;
    reply->source_fd = keeper ? session->src_fd : -1;
    reply->store_fd = keeper && session->store && session->store_apart ? session->store->dir_fd : -1;
    return 0;
}

/* ---- handlers -------------------------------------------------------------------------------- */

#define ANSWER(NAME, name, flags, ...) [WB_CONTROL_##NAME] = {wb_control_##name, flags},

static const struct answer {
    int (*carry_out)(const struct wb_request *request, struct wb_control *out);
    unsigned flags;
} answers[] = {WB_CONTROL_REQUESTS(ANSWER)};

/* NULL: no such request exists. */
static const struct answer *answer_of(uint32_t command)
{
    return command < G_N_ELEMENTS(answers) && answers[command].carry_out ? &answers[command] : NULL;
}

/*
 * Only processes in the daemon's namespaces may change anything: user numbers in a container are those of other users,
 * and its processes do not have the rights that these numbers have outside.
 */
static int check_home(const struct wb_request *request, const struct answer *answer)
{
    if (!(answer->flags & (WB_REQUEST_CHANGES | WB_REQUEST_HOME)) || wb_control_is_at_home(request))
        return 0;
    return answer->flags & WB_REQUEST_AS_OTHERS ? -EXDEV : -EREMOTE;
}

static int carry_out(const struct wb_request *request, struct wb_control *out)
{
    const struct wb_session *session = request->session;
    const struct wb_control *in = request->in;
    const struct answer *answer = answer_of(in->command);
    int r;

    if (answer && (answer->flags & WB_REQUEST_BARE))
        return answer->carry_out(request, out);
    if (!answer || !memchr(in->path, '\0', sizeof(in->path)) ||
        ((answer->flags & WB_REQUEST_SOURCE) && !memchr(in->source, '\0', sizeof(in->source))))
        return -EINVAL;
    if ((answer->flags & WB_REQUEST_CHANGES) && session->options->read_only)
        return -EROFS;
    if (!session->history || ((answer->flags & WB_REQUEST_CHANGES) && !session->recording))
        return answer->flags & WB_REQUEST_NOTHING ? 0 : -EOPNOTSUPP;
    r = check_home(request, answer);
    if (r == 0 && (answer->flags & WB_REQUEST_KEEPER))
        r = wb_control_need_keeper(request);
    if (r < 0)
        return r;
    if (!(answer->flags & WB_REQUEST_PLEADS))
        return answer->carry_out(request, out);
    wb_enospc_retry_begin(request->session);
    do {
        r = answer->carry_out(request, out);
    } while (wb_enospc_retry_helps(request->req, r));
    return r;
}

static void serve(struct wb_request *request)
{
    g_autofree struct wb_control *out = g_try_new0(struct wb_control, 1);
    struct wb_caller caller = {0};
    int r = -ENOMEM;

    request->caller = &caller;

    if (out) {
        out->version = WB_CONTROL_VERSION;
        out->command = request->in->command;
        r = carry_out(request, out);
    }
    if (r != 0 && request->session->past)
        r = wb_past_result_of_tool(request->session, r);
    if (r < 0)
        fuse_reply_err(request->req, -r);
    else
        fuse_reply_ioctl(request->req, 0, out, sizeof(*out));
}

/* ---- in threads of their own ----------------------------------------------------------------- */

struct job {
    struct wb_lane_job job;
    struct wb_request request;
    struct wb_control in;
};

static void run(struct wb_session *session, struct wb_lane_job *lane_job)
{
    struct job *job = (struct job *)lane_job;
    unsigned flags = answer_of(job->in.command)->flags;
    bool gate = !(flags & WB_REQUEST_RELOCATES);

    if (gate)
        wb_relocate_lock_shared(session);
    if (flags & WB_REQUEST_LOOK)
        wb_abandoned_watch(job->request.req);
    /* No process waits for the reply any more. */
    if (flags & WB_REQUEST_LOOK && fuse_session_exited(session->fuse))
        fuse_reply_err(job->request.req, ENODEV);
    else
        serve(&job->request);
    wb_abandoned_watch(NULL);
    if (gate)
        wb_relocate_unlock(&session);
    g_free(job);
}

/* The open directory the request was made on keeps its node until the reply. */
static int start(const struct wb_request *request, struct wb_lane *lane)
{
    struct job *job = g_try_new(struct job, 1);
    int r;

    if (!job)
        return -ENOMEM;
    job->job.run = run;
    job->in = *request->in;
    job->request = *request;
    job->request.in = &job->in;
    r = wb_lane_add(lane, fuse_req_ctx(request->req)->uid, &job->job);
    if (r < 0)
        g_free(job);
    return r;
}

void wb_control_wait(struct wb_session *session)
{
    if (!session->past)
        return;
    wb_lane_wait(&session->past->names);
    wb_lane_wait(&session->past->looks);
    wb_lane_wait(&session->past->changes);
}

void wb_ops_control(struct wb_session *session, fuse_req_t req, struct wb_node *dir,
                    const struct wb_control *in)
{
    struct wb_request request = {.session = session, .req = req, .start = dir, .in = in};
    const struct answer *answer = answer_of(in->command);
    struct wb_past *past = session->past;
    uid_t uid = fuse_req_ctx(req)->uid;
    int r;

    wb_stages_retry(session);
    if (past && answer && (answer->flags & (WB_REQUEST_THREAD | WB_REQUEST_LOOK))) {
        r = start(&request, answer->flags & WB_REQUEST_LOOK ? wb_past_lane(past, uid, &past->looks) : &past->changes);
        if (r < 0)
            fuse_reply_err(req, -r);
    } else {
        serve(&request);
    }
}
