/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Who waits for room (onfull=prune), and what must not go for it. A moment that is pinned is taken for that of a
 * snapshot by whatever forgets by age or for want of room: for as long as the request takes, also while it is tried
 * again, unless nothing else may go: then it is refused, and the others are not. The moment is looked at once more when
 * a horizon is published, with the tree owned: nobody is between two looks then.
 */
#include "daemon/keeper/keeper_parts.h"

#include <glib.h>

/* With threads->lock held; NULL: nothing is pinned. */
static struct wb_plea *oldest_pin(const struct wb_keeper *keeper)
{
    struct wb_plea *oldest = NULL;

    for (struct wb_plea *plea = keeper->pleas; plea; plea = plea->next)
        if (plea->pinned > 0 && (!oldest || plea->pinned < oldest->pinned))
            oldest = plea;
    return oldest;
}

int64_t wb_keeper_pinned(void *data)
{
    struct wb_session *session = data;
    const struct wb_plea *oldest;
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

    for (const struct wb_plea *plea = keeper->pleas; plea; plea = plea->next)
        count += plea->state == WB_PLEA_WAITS;
    return count;
}

/* ---- answering ------------------------------------------------------------------------------- */

/* Who waits, of those that were `seen`, or all. */
static void tell(struct wb_keeper *keeper, bool all, enum wb_plea_state state)
{
    for (struct wb_plea *plea = keeper->pleas; plea; plea = plea->next)
        if (plea->state == WB_PLEA_WAITS && (all || plea->seen))
            plea->state = state;
}

/* Nothing more may go while these are there: the one with the oldest moment is refused, and the others not for it. */
static bool refuse_oldest_pin(struct wb_keeper *keeper)
{
    struct wb_plea *oldest = oldest_pin(keeper);

    if (!oldest)
        return false;
    oldest->pinned = 0;
    oldest->state = WB_PLEA_REFUSED;
    return true;
}

void wb_keeper_answer(struct wb_keeper *keeper)
{
    struct wb_session_threads *threads = &keeper->session->threads;
    bool granted;

    for (struct wb_plea *plea = keeper->pleas; plea; plea = plea->next)
        plea->seen = plea->state == WB_PLEA_WAITS;
    atomic_store(&keeper->pleaded, false);
    pthread_mutex_unlock(&threads->lock);
    wb_gate_enter(keeper->session);
    granted = wb_keeper_give_way(keeper);
    wb_gate_leave(&keeper->session);
    pthread_mutex_lock(&threads->lock);
    /* Who asked meanwhile has not seen yet what went: he tries again before anything more goes for him. */
    if (granted)
        tell(keeper, true, WB_PLEA_GRANTED);
    else if (!refuse_oldest_pin(keeper))
        tell(keeper, false, WB_PLEA_REFUSED);
    atomic_store(&keeper->pleaded, wb_keeper_has_pleas(keeper));
    pthread_cond_broadcast(&threads->wake);
}

bool wb_keeper_has_pleas(const struct wb_keeper *keeper)
{
    return count_waiting(keeper) > 0;
}

/* ---- asking ---------------------------------------------------------------------------------- */

void wb_keeper_plead(struct wb_session *session, struct wb_plea *plea, int64_t pinned)
{
    struct wb_keeper *keeper = session->keeper;

    *plea = (struct wb_plea){.pinned = pinned};
    if (!keeper)
        return;
    pthread_mutex_lock(&session->threads.lock);
    plea->next = keeper->pleas;
    keeper->pleas = plea;
    pthread_mutex_unlock(&session->threads.lock);
}

void wb_keeper_plead_end(struct wb_session *session, struct wb_plea *plea)
{
    struct wb_keeper *keeper = session->keeper;
    struct wb_plea **at;

    if (!keeper)
        return;
    pthread_mutex_lock(&session->threads.lock);
    for (at = &keeper->pleas; *at && *at != plea; at = &(*at)->next)
        ;
    if (*at)
        *at = plea->next;
    pthread_mutex_unlock(&session->threads.lock);
}

bool wb_keeper_make_room(struct wb_session *session, struct wb_plea *plea, int64_t until)
{
    struct wb_session_threads *threads = &session->threads;
    struct wb_keeper *keeper = session->keeper;
    int64_t now = g_get_monotonic_time();
    bool granted;

    if (!keeper)
        return false;
    pthread_mutex_lock(&threads->lock);
    if (plea->state == WB_PLEA_REFUSED || count_waiting(keeper) == WB_KEEPER_WAITERS) {
        pthread_mutex_unlock(&threads->lock);
        return false;
    }
    plea->state = WB_PLEA_WAITS;
    atomic_store(&keeper->pleaded, true);
    pthread_cond_broadcast(&threads->wake);
    for (; !atomic_load(&keeper->ends) && plea->state == WB_PLEA_WAITS && now < until; now = g_get_monotonic_time())
        wb_session_wait(threads, (until - now) * 1000);
    granted = plea->state == WB_PLEA_GRANTED;
    if (plea->state == WB_PLEA_WAITS)
        plea->state = WB_PLEA_RESTS;
    pthread_mutex_unlock(&threads->lock);
    return granted;
}
