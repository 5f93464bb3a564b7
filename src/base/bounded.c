/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "base/bounded.h"

#include <errno.h>
#include <glib.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <time.h>

/* If this many reads, over all users, exceeded the limit within PAUSE_MS, no more begin. So users cannot cause more
 * waits of WB_BOUNDED_MS than this in PAUSE_MS. */
#define LATE_MAX 8
#define PAUSE_MS 60000
#define IDLE_MAX 4

struct job {
    struct job *next; /* in `queue` or `late` */
    uid_t uid;
    void (*work)(void *data);
    void (*discard)(void *data);
    void *data;
    bool begun, ended;
    bool is_late; /* the caller has stopped waiting for it */
    int64_t since; /* ms: when the call began; if it was late and has ended, when it ended */
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_once_t once = PTHREAD_ONCE_INIT;
static pthread_cond_t queued, changed; /* wakes the threads; wakes their callers */
static struct job *queue, *late;
static unsigned idle, waiting; /* threads; jobs in the queue */

static void prepare(void)
{
    pthread_condattr_t attr;

    pthread_condattr_init(&attr);
    pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    pthread_cond_init(&queued, NULL);
    pthread_cond_init(&changed, &attr);
    pthread_condattr_destroy(&attr);
}

static int64_t now_ms(void)
{
    return g_get_monotonic_time() / 1000;
}

static void wait_until(int64_t ms)
{
    struct timespec until = {.tv_sec = ms / 1000, .tv_nsec = ms % 1000 * 1000000};

    pthread_cond_timedwait(&changed, &lock, &until);
}

/* ---- the threads: each of these with the lock held -------------------------------------------- */

static void do_first(void)
{
    struct job *job = queue;

    queue = job->next;
    waiting--;
    job->begun = true;
    job->since = now_ms();
    pthread_cond_broadcast(&changed);
    pthread_mutex_unlock(&lock);
    job->work(job->data);
    pthread_mutex_lock(&lock);
    job->ended = true;
    job->since = now_ms();
    if (job->is_late)
        job->discard(job->data);
    pthread_cond_broadcast(&changed);
}

static void *serve(void *unused)
{
    (void)unused;
    pthread_mutex_lock(&lock);
    for (;;) {
        while (queue)
            do_first();
        if (idle >= IDLE_MAX)
            break;
        idle++;
        pthread_cond_wait(&queued, &lock);
        idle--;
    }
    pthread_mutex_unlock(&lock);
    return NULL;
}

static int start_thread(void)
{
    pthread_t thread;
    int r = pthread_create(&thread, NULL, serve, NULL);

    if (r == 0)
        pthread_detach(thread);
    return -r;
}

/* ---- a call: each of these with the lock held -------------------------------------------------- */

/* Whether reads for this user are refused now. Forgets reads that ended more than PAUSE_MS ago. */
static bool is_refused(uid_t uid)
{
    struct job **at = &late;
    unsigned count = 0;
    bool same = false;

    while (*at) {
        struct job *job = *at;

        if (job->ended && now_ms() - job->since >= PAUSE_MS) {
            *at = job->next;
            g_free(job);
            continue;
        }
        same = same || job->uid == uid;
        count++;
        at = &job->next;
    }
    return same || count >= LATE_MAX;
}

static int enqueue(struct job *job)
{
    int r = waiting < idle ? 0 : start_thread();

    if (r < 0)
        return r;
    job->next = queue;
    queue = job;
    waiting++;
    pthread_cond_signal(&queued);
    return 0;
}

static int wait_for(struct job *job)
{
    while (!job->begun)
        pthread_cond_wait(&changed, &lock);
    while (!job->ended && now_ms() < job->since + WB_BOUNDED_MS)
        wait_until(job->since + WB_BOUNDED_MS);
    if (job->ended)
        return 0;
    job->is_late = true;
    job->next = late;
    late = job;
    return -ETIMEDOUT;
}

int wb_bounded_call(uid_t uid, void (*work)(void *data), void (*discard)(void *data), void *data)
{
    struct job *job = g_try_new(struct job, 1);
    int r = job ? 0 : -ENOMEM;

    pthread_once(&once, prepare);
    pthread_mutex_lock(&lock);
    if (r == 0) {
        *job = (struct job){.uid = uid, .work = work, .discard = discard, .data = data};
        r = is_refused(uid) ? -EBUSY : enqueue(job);
    }
    if (r == 0)
        r = wait_for(job);
    pthread_mutex_unlock(&lock);
    if (r == -ETIMEDOUT)
        return r;
    g_free(job);
    if (r < 0)
        discard(data);
    return r;
}
