/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

/*
 * A lane: requests that may take long are carried out here, beside the workers, so that short ones do not wait for
 * them. At most so many of one user at a time; users take turns. Threads are started as they are needed and end
 * when there is nothing to do; they run at a lower priority than the workers.
 *
 * A request in a lane may wait for requests of workers, and for what another request of its user has in hand, but not
 * for a request of its user that has to be carried out in the same lane: that one may stand behind it.
 */

#include <pthread.h>
#include <stdbool.h>
#include <sys/types.h>

struct wb_session;
struct wb_lane_user;

/* The first member of what is to be done. `run` frees it. */
struct wb_lane_job {
    struct wb_lane_job *next;
    void (*run)(struct wb_session *session, struct wb_lane_job *job);
};

struct wb_lane {
    struct wb_session *session;
    unsigned per_user;    /* jobs of one user at a time; */
    bool root_is_free;    /* of root, any number */
    unsigned threads_max;
    int nice;
    pthread_mutex_t lock;
    pthread_cond_t work, idle;
    struct wb_lane_user *users, **last_user; /* who has jobs; the first one is next */
    unsigned jobs;        /* waiting, or being run */
    unsigned threads, resting, called; /* called: of those that rest, so many were woken and have not run yet */
    bool stop;
};

void wb_lane_init(struct wb_lane *lane, struct wb_session *session, unsigned per_user, unsigned threads_max, int nice);

/* Runs `job` for `uid` once it is its turn. 0, or -errno: the job is still the caller's. */
int wb_lane_add(struct wb_lane *lane, uid_t uid, struct wb_lane_job *job);

/* Waits for the jobs that are under way. */
void wb_lane_wait(struct wb_lane *lane);

/* Waits for them, and for the threads to end. */
void wb_lane_deinit(struct wb_lane *lane);
