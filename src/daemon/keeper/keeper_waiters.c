/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * The requests that wait for room (onfull=prune), and the moments that they pin. Until a request has ended, also while
 * it is retried, deletion by age and for space treats its moment as that of a snapshot. If no other history is left to
 * delete, the request with the oldest pin is refused, and the others continue to wait. The pins are read once more when
 * a horizon is published, with ns_lock held exclusively, while no request is under way.
 */
#include "daemon/keeper/keeper_parts.h"

#include <glib.h>
#include <stdatomic.h>

/* With threads->lock held; NULL: nothing is pinned. */
static struct wb_space_waiter *oldest_pin(const struct wb_keeper *keeper)
{
    struct wb_space_waiter *oldest = NULL;

    for (struct wb_space_waiter *waiter = keeper->waiters; waiter; waiter = waiter->next)
        if (waiter->pinned > 0 && (!oldest || waiter->pinned < oldest->pinned))
            oldest = waiter;
    return oldest;
}

int64_t wb_keeper_pinned(void *data)
{
    struct wb_session *session = data;
    const struct wb_space_waiter *oldest;
    int64_t pinned;

    pthread_mutex_lock(&session->threads.lock);
    oldest = oldest_pin(session->keeper);
    pinned = oldest ? oldest->pinned : 0;
    pthread_mutex_unlock(&session->threads.lock);
    return pinned;
}

static unsigned count_waiting(const struct wb_keeper *keeper)
{
    unsigned count = 0;

    for (const struct wb_space_waiter *waiter = keeper->waiters; waiter; waiter = waiter->next)
        count += waiter->state == WB_WAITER_WAITS;
    return count;
}

bool wb_keeper_has_waiters(const struct wb_keeper *keeper)
{
    return count_waiting(keeper) > 0;
}

/* ---- answering ------------------------------------------------------------------------------- */

void wb_keeper_answer_waiters(struct wb_keeper *keeper, bool all, enum wb_space_waiter_state state)
{
    for (struct wb_space_waiter *waiter = keeper->waiters; waiter; waiter = waiter->next)
        if (waiter->state == WB_WAITER_WAITS && (all || waiter->seen))
            waiter->state = state;
}

bool wb_keeper_refuse_oldest_pin(struct wb_keeper *keeper)
{
    struct wb_space_waiter *oldest = oldest_pin(keeper);

    if (!oldest)
        return false;
    oldest->pinned = 0;
    oldest->state = WB_WAITER_REFUSED;
    return true;
}

/* ---- asking ---------------------------------------------------------------------------------- */

void wb_space_waiter_add(struct wb_session *session, struct wb_space_waiter *waiter, int64_t pinned)
{
    struct wb_keeper *keeper = session->keeper;

    *waiter = (struct wb_space_waiter){.pinned = pinned};
    if (!keeper)
        return;
    pthread_mutex_lock(&session->threads.lock);
    waiter->next = keeper->waiters;
    keeper->waiters = waiter;
    pthread_mutex_unlock(&session->threads.lock);
}

void wb_space_waiter_remove(struct wb_session *session, struct wb_space_waiter *waiter)
{
    struct wb_keeper *keeper = session->keeper;
    struct wb_space_waiter **at;

    if (!keeper)
        return;
    pthread_mutex_lock(&session->threads.lock);
    for (at = &keeper->waiters; *at && *at != waiter; at = &(*at)->next)
        ;
    if (*at)
        *at = waiter->next;
    pthread_mutex_unlock(&session->threads.lock);
}

bool wb_keeper_make_room(struct wb_session *session, struct wb_space_waiter *waiter, int64_t until)
{
    struct wb_session_threads *threads = &session->threads;
    struct wb_keeper *keeper = session->keeper;
    int64_t now = g_get_monotonic_time();
    bool granted;

    if (!keeper)
        return false;
    pthread_mutex_lock(&threads->lock);
    if (waiter->state == WB_WAITER_REFUSED || count_waiting(keeper) == WB_KEEPER_WAITERS) {
        pthread_mutex_unlock(&threads->lock);
        return false;
    }
    waiter->state = WB_WAITER_WAITS;
    atomic_store(&keeper->pleaded, true);
    pthread_cond_broadcast(&threads->wake);
    for (; !atomic_load(&keeper->ends) && waiter->state == WB_WAITER_WAITS && now < until; now = g_get_monotonic_time())
        wb_session_wait(threads, (until - now) * 1000);
    granted = waiter->state == WB_WAITER_GRANTED;
    if (waiter->state == WB_WAITER_WAITS)
        waiter->state = WB_WAITER_RESTS;
    pthread_mutex_unlock(&threads->lock);
    return granted;
}
