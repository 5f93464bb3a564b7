/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "daemon/core/lane.h"

#include "daemon/core/session.h"
#include "wayback/when.h"
#include <errno.h>
#include <glib.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

/* A thread that has nothing to do ends after so long. */
#define REST_SECONDS 5

/* One who has jobs, waiting or being run. */
struct wb_lane_user {
    struct wb_lane_user *next;
    uid_t uid;
    unsigned running;
    struct wb_lane_job *first, **last;
};

void wb_lane_init(struct wb_lane *lane, struct wb_session *session, unsigned per_user, unsigned threads_max, int nice)
{
    pthread_condattr_t monotonic;

    *lane = (struct wb_lane){.session = session, .per_user = per_user, .threads_max = threads_max, .nice = nice};
    lane->last_user = &lane->users;
    pthread_mutex_init(&lane->lock, NULL);
    pthread_condattr_init(&monotonic);
    pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    pthread_cond_init(&lane->work, &monotonic);
    pthread_condattr_destroy(&monotonic);
    pthread_cond_init(&lane->idle, NULL);
}

/* ---- with the lock held ------------------------------------------------------------------------ */

static struct wb_lane_user **find_user(struct wb_lane *lane, uid_t uid)
{
    struct wb_lane_user **slot = &lane->users;

    while (*slot && (*slot)->uid != uid)
        slot = &(*slot)->next;
    return slot;
}

static void append(struct wb_lane *lane, struct wb_lane_user *user)
{
    user->next = NULL;
    *lane->last_user = user;
    lane->last_user = &user->next;
}

static void take_out(struct wb_lane *lane, struct wb_lane_user **slot)
{
    struct wb_lane_user *user = *slot;

    *slot = user->next;
    if (lane->last_user == &user->next)
        lane->last_user = slot;
}

static bool may_run(const struct wb_lane *lane, const struct wb_lane_user *user)
{
    return user->running < lane->per_user || (lane->root_is_free && user->uid == 0);
}

/* The next job whose user may have one more, or NULL. Its user goes to the end of the row. */
static struct wb_lane_job *next_job(struct wb_lane *lane, struct wb_lane_user **ret)
{
    for (struct wb_lane_user **slot = &lane->users; *slot; slot = &(*slot)->next) {
        struct wb_lane_user *user = *slot;
        struct wb_lane_job *job = user->first;

        if (!job || !may_run(lane, user))
            continue;
        user->first = job->next;
        if (!user->first)
            user->last = &user->first;
        user->running++;
        take_out(lane, slot);
        append(lane, user);
        *ret = user;
        return job;
    }
    return NULL;
}

static void end_job(struct wb_lane *lane, struct wb_lane_user *user)
{
    if (--user->running == 0 && !user->first) {
        take_out(lane, find_user(lane, user->uid));
        g_free(user);
    }
    if (--lane->jobs == 0)
        pthread_cond_broadcast(&lane->idle);
}

/* Whether there may be something to do before long. */
static bool rest(struct wb_lane *lane)
{
    struct timespec until;
    int r;

    if (lane->stop)
        return false;
    clock_gettime(CLOCK_MONOTONIC, &until);
    until.tv_sec += REST_SECONDS;
    lane->resting++;
    r = pthread_cond_timedwait(&lane->work, &lane->lock, &until);
    lane->resting--;
    if (lane->called == 0)
        return r != ETIMEDOUT;
    lane->called--;
    return true;
}

/* ---- threads ------------------------------------------------------------------------------------- */

static void *work(void *data)
{
    struct wb_lane *lane = data;
    struct wb_lane_user *user;
    struct wb_lane_job *job;

    if (lane->nice > 0)
        setpriority(PRIO_PROCESS, (id_t)gettid(), lane->nice);
    pthread_mutex_lock(&lane->lock);
    while ((job = next_job(lane, &user)) || rest(lane)) {
        if (!job)
            continue;
        pthread_mutex_unlock(&lane->lock);
        wb_history_clear_error();
        job->run(lane->session, job);
        pthread_mutex_lock(&lane->lock);
        end_job(lane, user);
    }
    lane->threads--;
    if (lane->stop)
        pthread_cond_broadcast(&lane->idle);
    pthread_mutex_unlock(&lane->lock);
    return NULL;
}

/* With the lock held: somebody will do it. */
static int wake(struct wb_lane *lane, const struct wb_lane_user *user)
{
    pthread_t thread;
    int r;

    /* One of the user's own is to take it. */
    if (!may_run(lane, user))
        return 0;
    if (lane->resting > lane->called) {
        lane->called++;
        pthread_cond_signal(&lane->work);
        return 0;
    }
    if (lane->threads >= lane->threads_max)
        return 0;
    r = pthread_create(&thread, NULL, work, lane);
    if (r == 0) {
        pthread_detach(thread);
        lane->threads++;
    }
    return r == 0 || lane->threads > 0 ? 0 : -r;
}

int wb_lane_add(struct wb_lane *lane, uid_t uid, struct wb_lane_job *job)
{
    struct wb_lane_user **slot, *user, *made = NULL;
    int r = 0;

    job->next = NULL;
    pthread_mutex_lock(&lane->lock);
    slot = find_user(lane, uid);
    user = *slot;
    if (!user) {
        user = made = g_try_new0(struct wb_lane_user, 1);
        r = made ? 0 : -ENOMEM;
    }
    if (made) {
        user->uid = uid;
        user->last = &user->first;
    }
    if (r == 0)
        r = wake(lane, user);
    if (r == 0) {
        if (made)
            append(lane, made);
        *user->last = job;
        user->last = &job->next;
        lane->jobs++;
        made = NULL;
    }
    pthread_mutex_unlock(&lane->lock);
    g_free(made);
    return r;
}

/* ---- the end ------------------------------------------------------------------------------------- */

void wb_lane_wait(struct wb_lane *lane)
{
    pthread_mutex_lock(&lane->lock);
    while (lane->jobs > 0)
        pthread_cond_wait(&lane->idle, &lane->lock);
    pthread_mutex_unlock(&lane->lock);
}

void wb_lane_deinit(struct wb_lane *lane)
{
    pthread_mutex_lock(&lane->lock);
    lane->stop = true;
    pthread_cond_broadcast(&lane->work);
    while (lane->jobs > 0 || lane->threads > 0)
        pthread_cond_wait(&lane->idle, &lane->lock);
    pthread_mutex_unlock(&lane->lock);
    pthread_cond_destroy(&lane->work);
    pthread_cond_destroy(&lane->idle);
    pthread_mutex_destroy(&lane->lock);
}
