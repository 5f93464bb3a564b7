/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * One reads, and does what it has read.
 *
 * libfuse's own loop lets all workers wait at /dev/fuse, and the kernel wakes the one that has waited longest:
 * with one client each request meets another worker, whose caches are cold and whose core may be asleep. Here at most
 * one worker reads at a time, does the request itself, and reads on; the others are parked, and the one
 * parked last is called first. Another is called to read
 *   - where requests have been waiting several times in a row: there is work for more than one core;
 *   - before a request that mostly takes long (fsync, a command to the daemon), or a large one while others wait;
 *   - by the handler of a request, if it is about to wait for another one (wb_loop_step_aside);
 *   - by the lookout, when no request was read for a tick while no one reads: the last reader is stuck in
 *     whatever it is at (a lock, a slow disk, a notification for which the kernel wants to be served first).
 * The last of these is what makes the loop free of deadlocks; the others are there for speed.
 *
 * A worker is cancelled while it reads and at no other time, as in libfuse's loop: a signal might come just
 * before it starts reading, and be missed.
 */
#include "daemon/loop.h"

#include "daemon/session.h"
#include <errno.h>
#include <glib.h>
#include <linux/fuse.h>
#include <poll.h>
#include <stdlib.h>
#include <time.h>

#define WB_WORKERS 8
/* So often in a row have others waited when a second worker pays. */
#define WB_PRESSURE 3
/* Requests with more data than this are large. */
#define WB_LARGE_REQUEST (64 << 10)
#define WB_TICK_NS (2 * 1000 * 1000)
/* After so many ticks without a request the lookout sleeps until there is one. */
#define WB_QUIET_TICKS 50

struct worker {
    struct wb_loop *loop;
    struct worker *next; /* parked before */
    struct fuse_buf buffer;
    pthread_t thread;
    pthread_cond_t wake;
    bool called;
};

struct wb_loop {
    struct fuse_session *fuse;
    int fd;
    pthread_mutex_t lock; /* of what follows, short */
    struct worker *parked;
    bool reading;   /* somebody reads, or was called to */
    uint64_t taken; /* requests read so far */
    unsigned pressure;
    bool over;
    int error;
    pthread_cond_t ended;
    pthread_t lookout;
    pthread_cond_t lookout_wake;
    bool lookout_runs, lookout_sleeps;
    unsigned count;
    struct worker workers[WB_WORKERS];
};

static _Thread_local struct worker *current;

/* With the lock held. Where all are busy, the first that is done reads. */
static void call_another(struct wb_loop *loop)
{
    struct worker *worker = loop->parked;

    if (loop->reading || !worker || loop->over)
        return;
    loop->parked = worker->next;
    loop->reading = true;
    worker->called = true;
    pthread_cond_signal(&worker->wake);
}

/* With the lock held, which is let go meanwhile. Whether this worker is to read; false: it is over. */
static bool wait_for_turn(struct wb_loop *loop, struct worker *worker)
{
    if (!loop->over && !loop->reading) {
        loop->reading = true;
        return true;
    }
    worker->called = false;
    worker->next = loop->parked;
    loop->parked = worker;
    while (!worker->called && !loop->over)
        pthread_cond_wait(&worker->wake, &loop->lock);
    return !loop->over;
}

/* With the lock held. */
static void end(struct wb_loop *loop, int error)
{
    if (!loop->over)
        loop->error = error;
    loop->over = true;
    pthread_cond_signal(&loop->ended);
}

/* ---- which requests leave room for others ---------------------------------------------------- */

static bool is_slow(const struct fuse_buf *buffer)
{
    const struct fuse_in_header *in = buffer->mem;

    switch (in->opcode) {
    case FUSE_FSYNC:
    case FUSE_FSYNCDIR:
    case FUSE_SYNCFS:
    case FUSE_IOCTL:
    case FUSE_COPY_FILE_RANGE:
        return true;
    default:
        return false;
    }
}

static bool is_large(const struct fuse_buf *buffer)
{
    const struct fuse_in_header *in = buffer->mem;
    const struct fuse_read_in *read = (const struct fuse_read_in *)(in + 1);

    if (in->opcode == FUSE_READ && buffer->size >= sizeof(*in) + sizeof(*read))
        return read->size > WB_LARGE_REQUEST;
    return buffer->size > WB_LARGE_REQUEST;
}

static bool is_waiting(int fd)
{
    struct pollfd poll_fd = {.fd = fd, .events = POLLIN};

    return poll(&poll_fd, 1, 0) > 0;
}

/* ---- threads --------------------------------------------------------------------------------- */

static int receive(struct wb_loop *loop, struct worker *worker)
{
    int r;

    pthread_setcancelstate(PTHREAD_CANCEL_ENABLE, NULL);
    r = fuse_session_receive_buf(loop->fuse, &worker->buffer);
    pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, NULL);
    return r;
}

/* With the lock held, after a request was read. */
static void note_request(struct wb_loop *loop, const struct fuse_buf *buffer, bool waiting)
{
    loop->taken++;
    loop->pressure = waiting ? loop->pressure + 1 : 0;
    if (loop->lookout_sleeps)
        pthread_cond_signal(&loop->lookout_wake);
    if (is_slow(buffer) || loop->pressure >= WB_PRESSURE || (waiting && is_large(buffer)))
        call_another(loop);
}

static void *work(void *data)
{
    struct worker *worker = data;
    struct wb_loop *loop = worker->loop;
    bool waiting;
    int r;

    pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, NULL);
    current = worker;
    pthread_mutex_lock(&loop->lock);
    while (wait_for_turn(loop, worker)) {
        pthread_mutex_unlock(&loop->lock);
        r = receive(loop, worker);
        waiting = r > 0 && is_waiting(loop->fd);
        pthread_mutex_lock(&loop->lock);
        loop->reading = false;
        if (r == -EINTR || r == -EAGAIN)
            continue;
        if (r <= 0) {
            end(loop, r);
            break;
        }
        note_request(loop, &worker->buffer, waiting);
        pthread_mutex_unlock(&loop->lock);
        fuse_session_process_buf(loop->fuse, &worker->buffer);
        pthread_mutex_lock(&loop->lock);
    }
    pthread_mutex_unlock(&loop->lock);
    return NULL;
}

static void wait_a_tick(struct wb_loop *loop)
{
    struct timespec until;

    clock_gettime(CLOCK_MONOTONIC, &until);
    until.tv_nsec += WB_TICK_NS;
    if (until.tv_nsec >= 1000000000) {
        until.tv_nsec -= 1000000000;
        until.tv_sec++;
    }
    pthread_cond_timedwait(&loop->lookout_wake, &loop->lock, &until);
}

static void *look_out(void *data)
{
    struct wb_loop *loop = data;
    uint64_t seen = 0;
    unsigned quiet = 0;

    pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, NULL);
    pthread_mutex_lock(&loop->lock);
    while (!loop->over) {
        bool still = loop->taken == seen;

        seen = loop->taken;
        quiet = still && loop->reading ? quiet + 1 : 0;
        if (still && !loop->reading)
            call_another(loop);
        if (quiet < WB_QUIET_TICKS) {
            wait_a_tick(loop);
            continue;
        }
        loop->lookout_sleeps = true;
        pthread_cond_wait(&loop->lookout_wake, &loop->lock);
        loop->lookout_sleeps = false;
        quiet = 0;
    }
    pthread_mutex_unlock(&loop->lock);
    return NULL;
}

/* ---- from outside ---------------------------------------------------------------------------- */

void wb_loop_step_aside(void)
{
    struct wb_loop *loop = current ? current->loop : NULL;

    if (!loop)
        return;
    pthread_mutex_lock(&loop->lock);
    call_another(loop);
    pthread_mutex_unlock(&loop->lock);
}

void wb_loop_stop(struct wb_loop *loop)
{
    fuse_session_exit(loop->fuse);
    pthread_mutex_lock(&loop->lock);
    end(loop, 0);
    pthread_mutex_unlock(&loop->lock);
}

struct wb_loop *wb_loop_new(struct wb_session *session)
{
    struct wb_loop *loop = g_try_new0(struct wb_loop, 1);
    pthread_condattr_t attr;

    if (!loop)
        return NULL;
    loop->fuse = session->fuse;
    loop->fd = fuse_session_fd(session->fuse);
    pthread_mutex_init(&loop->lock, NULL);
    pthread_cond_init(&loop->ended, NULL);
    pthread_condattr_init(&attr);
    pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    pthread_cond_init(&loop->lookout_wake, &attr);
    pthread_condattr_destroy(&attr);
    for (unsigned i = 0; i < WB_WORKERS; i++) {
        loop->workers[i].loop = loop;
        pthread_cond_init(&loop->workers[i].wake, NULL);
    }
    return loop;
}

struct wb_loop *wb_loop_free(struct wb_loop *loop)
{
    if (!loop)
        return NULL;
    for (unsigned i = 0; i < WB_WORKERS; i++) {
        pthread_cond_destroy(&loop->workers[i].wake);
        free(loop->workers[i].buffer.mem); /* libfuse's malloc */
    }
    pthread_cond_destroy(&loop->lookout_wake);
    pthread_cond_destroy(&loop->ended);
    pthread_mutex_destroy(&loop->lock);
    g_free(loop);
    return NULL;
}

/* Without a lookout one worker could not do: then it does not start at all. */
static int start(struct wb_loop *loop)
{
    int r = pthread_create(&loop->lookout, NULL, look_out, loop);

    if (r != 0)
        return -r;
    loop->lookout_runs = true;
    for (; loop->count < WB_WORKERS; loop->count++) {
        struct worker *worker = &loop->workers[loop->count];

        r = pthread_create(&worker->thread, NULL, work, worker);
        /* With fewer it is slower, and one that waits for itself needs a second. */
        if (r != 0)
            return loop->count < 2 ? -r : 0;
    }
    return 0;
}

static void finish(struct wb_loop *loop)
{
    pthread_mutex_lock(&loop->lock);
    loop->over = true;
    pthread_cond_signal(&loop->lookout_wake);
    for (unsigned i = 0; i < loop->count; i++)
        pthread_cond_signal(&loop->workers[i].wake);
    pthread_mutex_unlock(&loop->lock);
    for (unsigned i = 0; i < loop->count; i++)
        pthread_cancel(loop->workers[i].thread);
    for (unsigned i = 0; i < loop->count; i++)
        pthread_join(loop->workers[i].thread, NULL);
    if (loop->lookout_runs)
        pthread_join(loop->lookout, NULL);
}

int wb_loop_run(struct wb_loop *loop)
{
    int r = start(loop);

    pthread_mutex_lock(&loop->lock);
    while (r == 0 && !loop->over)
        pthread_cond_wait(&loop->ended, &loop->lock);
    if (r == 0)
        r = loop->error;
    pthread_mutex_unlock(&loop->lock);
    finish(loop);
    return r;
}
