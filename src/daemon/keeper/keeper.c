/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "daemon/keeper/keeper_parts.h"

#include "daemon/system/report.h"
#include "wayback/when.h"
#include <glib.h>
#include <stdatomic.h>

/* It is looked whether anything is to be done at least and at most so often. */
#define LOOK_LEAST (1 * WB_WHEN_SECOND)
#define LOOK_MOST (30 * WB_WHEN_SECOND)
/* And for so many times as long as it took last, it rests. */
#define REST 10

static void warn_pinned(struct wb_keeper *keeper, const struct wb_snapshots *all, bool pinned)
{
    char text[WB_WHEN_TEXT_MAX];
    int64_t when = pinned ? all->list[0].when : 0;

    if (when != 0 && when != keeper->warned_pinned)
        wb_log_msg("%s%s%s: the history since %s is kept for the snapshot %s, longer than wayback.conf requires",
                   keeper->session->source, pinned && *all->list[0].path ? "/" : "", pinned ? all->list[0].path : "",
                   wb_when_print(when, 0, text), all->list[0].name);
    keeper->warned_pinned = when;
}

/* Does what is due; for how long there is nothing more to do. */
static int64_t look_at_all(struct wb_keeper *keeper)
{
    struct wb_snapshots *all __attribute__((cleanup(wb_snapshots_unrefp))) = NULL;
    int64_t begun = g_get_monotonic_time(), took, versions;
    struct wb_keeper_state state;
    struct wb_keeper_plan plan;

    if (wb_snapshots_get(keeper->session->store, &all) < 0)
        return LOOK_MOST;
    wb_keeper_plan(keeper, all, &state, &plan);
    if (wb_policy_has_room(&keeper->policy))
        return wb_keeper_look_at_room(keeper, all);
    if (plan.horizon == 0 && keeper->unfinished)
        plan.horizon = state.begins;
    warn_pinned(keeper, all, plan.pinned && all->count > 0 && all->list[0].when == state.pinned);
    if (plan.horizon > 0 || plan.beyond > 0)
        wb_keeper_forget(keeper, plan.horizon > 0 ? plan.horizon : state.begins, plan.beyond, false);
    took = (g_get_monotonic_time() - begun) * 1000;
    versions = wb_keeper_look_at_versions(keeper, &state, false);
    return MAX(CLAMP(MIN(plan.again - state.now, versions), LOOK_LEAST, LOOK_MOST), took * REST);
}

static int64_t look(struct wb_keeper *keeper)
{
    int64_t users = wb_keeper_look_at_users(keeper);

    return MIN(users, look_at_all(keeper));
}

static void take_policy(struct wb_keeper *keeper)
{
    if (!keeper->has_next)
        return;
    wb_policy_deinit(&keeper->policy);
    keeper->policy = keeper->next;
    wb_policy_init(&keeper->next);
    keeper->has_next = false;
    keeper->has_policy = true;
    keeper->ageless = (struct wb_policy){.max_size = keeper->policy.max_size, .reserve = keeper->policy.reserve,
                                         .user_max = keeper->policy.user_max};
    keeper->room = (struct wb_keeper_room){0};
    atomic_store(&keeper->pace.range, 0);
    keeper->thin_again = 0;
    keeper->beyond = 0;
    atomic_store(&keeper->reclaimable, 0);
    atomic_store(&keeper->session->is_short, false);
}

static void *keep(void *data)
{
    struct wb_keeper *keeper = data;
    struct wb_session_threads *threads = &keeper->session->threads;
    int64_t until, now;

    pthread_mutex_lock(&threads->lock);
    while (!atomic_load(&keeper->ends)) {
        take_policy(keeper);
        if (wb_keeper_has_waiters(keeper)) {
            wb_keeper_answer(keeper);
            continue;
        }
        pthread_mutex_unlock(&threads->lock);
        wb_relocate_lock_shared(keeper->session);
        wb_keeper_hold_room(keeper);
        until = g_get_monotonic_time() + look(keeper) / 1000;
        wb_relocate_unlock(&keeper->session);
        pthread_mutex_lock(&threads->lock);
        /* Others are woken by the same condition. */
        while (!atomic_load(&keeper->ends) && !keeper->has_next && !wb_keeper_has_waiters(keeper) &&
               !atomic_load(&keeper->users.wanted) && (now = g_get_monotonic_time()) < until)
            wb_session_wait(threads, (until - now) * 1000);
    }
    pthread_mutex_unlock(&threads->lock);
    return NULL;
}

void wb_keeper_set(struct wb_session *session, struct wb_policy *policy)
{
    struct wb_keeper *keeper = session->keeper;

    if (!keeper)
        return;
    pthread_mutex_lock(&session->threads.lock);
    wb_policy_deinit(&keeper->next);
    keeper->next = *policy;
    wb_policy_init(policy);
    keeper->has_next = true;
    pthread_cond_broadcast(&session->threads.wake);
    pthread_mutex_unlock(&session->threads.lock);
}

void wb_keeper_leave_place(struct wb_session *session)
{
    if (session->keeper)
        wb_keeper_hold_end(session->keeper);
}

uint64_t wb_keeper_reclaimable(struct wb_session *session)
{
    return session->keeper ? atomic_load(&session->keeper->reclaimable) : 0;
}

int wb_keeper_start(struct wb_session *session)
{
    struct wb_keeper *keeper;
    int r;

    if (!session->recording)
        return 0;
    keeper = g_new0(struct wb_keeper, 1);
    keeper->session = session;
    /* Somebody was killed, perhaps while he forgot. */
    keeper->unfinished = session->store->stamps.unclean && wb_store_horizon(session->store) > 0;
    wb_policy_init(&keeper->policy);
    wb_policy_init(&keeper->next);
    keeper->held_fd = -1;
    wb_keeper_clock_begin(keeper);
    session->keeper = keeper;
    r = pthread_create(&keeper->thread, NULL, keep, keeper);
    if (r != 0) {
        session->keeper = NULL;
        g_free(keeper);
    }
    return -r;
}

void wb_keeper_stop(struct wb_session *session)
{
    struct wb_keeper *keeper = session->keeper;

    if (!keeper)
        return;
    atomic_store(&keeper->ends, true);
    pthread_mutex_lock(&session->threads.lock);
    pthread_cond_broadcast(&session->threads.wake);
    pthread_mutex_unlock(&session->threads.lock);
    pthread_join(keeper->thread, NULL);
    /* What was recorded since somebody looked must not vouch for a clock that was set ahead. */
    wb_keeper_clock_end(keeper);
    wb_keeper_hold_end(keeper);
    wb_policy_deinit(&keeper->policy);
    wb_policy_deinit(&keeper->next);
    session->keeper = NULL;
    g_free(keeper);
}
