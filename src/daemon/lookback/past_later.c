/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "daemon/lookback/past_later.h"

#include "daemon/caller/abandoned.h"
#include "daemon/past/past.h"
#include "daemon/past/past_node.h"
#include <errno.h>
#include <glib.h>
#include <string.h>

struct job;
typedef void (*action)(struct job *job);

struct job {
    struct wb_lane_job job;
    action act;
    struct wb_session *session;
    fuse_req_t req;
    struct wb_node *node;
    struct fuse_file_info fi;
    size_t size;
    off_t offset;
    unsigned command; /* or from where on lseek seeks */
    char name[]; /* "" if there is none */
};

static void run(struct wb_session *session, struct wb_lane_job *lane_job)
{
    WB_WITH_RELOCATE_LOCK(session);
    struct job *job = (struct job *)lane_job;

    wb_abandoned_watch(job->req);
    /* Nobody waits for the answer. */
    if (fuse_session_exited(session->fuse))
        fuse_reply_err(job->req, ENODEV);
    else
        job->act(job);
    wb_abandoned_watch(NULL);
    g_free(job);
}

/* As `model` says. */
static void later(const struct job *model, const char *name)
{
    size_t size = strlen(name) + 1;
    struct wb_past *past = model->session->past;
    uid_t uid = fuse_req_ctx(model->req)->uid;
    struct job *job = g_try_malloc(sizeof(*job) + size);
    int r = -ENOMEM;

    if (job) {
        *job = *model;
        memcpy(job->name, name, size);
        job->job.run = run;
        r = wb_lane_add(wb_past_lane(past, uid, &past->names), uid, &job->job);
    }
    if (r < 0) {
        g_free(job);
        fuse_reply_err(model->req, -r);
    }
}

static void do_lookup(struct job *job)
{
    wb_past_lookup(job->session, job->req, job->node, job->name);
}

void wb_past_later_lookup(struct wb_session *session, fuse_req_t req, struct wb_node *parent, const char *name)
{
    later(&(struct job){.act = do_lookup, .session = session, .req = req, .node = parent}, name);
}

static void do_getattr(struct job *job)
{
    wb_past_getattr(job->session, job->req, job->node);
}

void wb_past_later_getattr(struct wb_session *session, fuse_req_t req, struct wb_node *node)
{
    if (wb_past_knows_attrs(session, wb_past_of(node)))
        wb_past_getattr(session, req, node);
    else
        later(&(struct job){.act = do_getattr, .session = session, .req = req, .node = node}, "");
}

static void do_readlink(struct job *job)
{
    wb_past_readlink(job->session, job->req, job->node);
}

void wb_past_later_readlink(struct wb_session *session, fuse_req_t req, struct wb_node *node)
{
    later(&(struct job){.act = do_readlink, .session = session, .req = req, .node = node}, "");
}

static void do_open(struct job *job)
{
    wb_past_open(job->session, job->req, job->node, &job->fi);
}

void wb_past_later_open(struct wb_session *session, fuse_req_t req, struct wb_node *node, struct fuse_file_info *fi)
{
    later(&(struct job){.act = do_open, .session = session, .req = req, .node = node, .fi = *fi}, "");
}

static void do_opendir(struct job *job)
{
    wb_past_opendir(job->session, job->req, job->node, &job->fi);
}

void wb_past_later_opendir(struct wb_session *session, fuse_req_t req, struct wb_node *node, struct fuse_file_info *fi)
{
    later(&(struct job){.act = do_opendir, .session = session, .req = req, .node = node, .fi = *fi}, "");
}

/* If a handle or the node has it open, here; if not, the request opens it first. */
static void when_open(struct job *job)
{
    struct wb_past_node *past = wb_past_of(job->node);

    if (job->fi.fh || !past || wb_past_kept_is(job->session, past))
        job->act(job);
    else
        later(job, "");
}

static void do_read(struct job *job)
{
    wb_past_read(job->session, job->req, job->node, job->size, job->offset, &job->fi);
}

void wb_past_later_read(struct wb_session *session, fuse_req_t req, struct wb_node *node, size_t size, off_t offset,
                        struct fuse_file_info *fi)
{
    when_open(&(struct job){.act = do_read, .session = session, .req = req, .node = node, .size = size,
                            .offset = offset, .fi = *fi});
}

static void do_lseek(struct job *job)
{
    wb_past_lseek(job->session, job->req, job->node, job->offset, (int)job->command, &job->fi);
}

void wb_past_later_lseek(struct wb_session *session, fuse_req_t req, struct wb_node *node, off_t offset, int whence,
                         struct fuse_file_info *fi)
{
    when_open(&(struct job){.act = do_lseek, .session = session, .req = req, .node = node, .offset = offset,
                            .command = (unsigned)whence, .fi = *fi});
}

static void do_readdir(struct job *job)
{
    wb_past_readdir(job->session, job->req, job->node, job->size, job->offset, &job->fi);
}

void wb_past_later_readdir(struct wb_session *session, fuse_req_t req, struct wb_node *node, size_t size, off_t offset,
                           struct fuse_file_info *fi)
{
    when_open(&(struct job){.act = do_readdir, .session = session, .req = req, .node = node, .size = size,
                            .offset = offset, .fi = *fi});
}

static void do_readdirplus(struct job *job)
{
    wb_past_readdirplus(job->session, job->req, job->node, job->size, job->offset, &job->fi);
}

void wb_past_later_readdirplus(struct wb_session *session, fuse_req_t req, struct wb_node *node, size_t size,
                               off_t offset, struct fuse_file_info *fi)
{
    when_open(&(struct job){.act = do_readdirplus, .session = session, .req = req, .node = node, .size = size,
                            .offset = offset, .fi = *fi});
}

static void do_getxattr(struct job *job)
{
    wb_past_getxattr(job->session, job->req, job->node, job->name, job->size);
}

void wb_past_later_getxattr(struct wb_session *session, fuse_req_t req, struct wb_node *node, const char *name,
                            size_t size)
{
    later(&(struct job){.act = do_getxattr, .session = session, .req = req, .node = node, .size = size}, name);
}

static void do_listxattr(struct job *job)
{
    wb_past_listxattr(job->session, job->req, job->node, job->size);
}

void wb_past_later_listxattr(struct wb_session *session, fuse_req_t req, struct wb_node *node, size_t size)
{
    later(&(struct job){.act = do_listxattr, .session = session, .req = req, .node = node, .size = size}, "");
}

static void do_flags(struct job *job)
{
    wb_past_flags(job->session, job->req, job->node, job->command);
}

void wb_past_later_flags(struct wb_session *session, fuse_req_t req, struct wb_node *node, unsigned command)
{
    later(&(struct job){.act = do_flags, .session = session, .req = req, .node = node, .command = command}, "");
}
