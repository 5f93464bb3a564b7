/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * user-max-size. What the history of each user takes is counted while it is recorded, and measured now and then
 * (usage/spent.h), always before anything goes. A little below the limit, the oldest of what may go of that user's
 * history goes, and their changes are held back meanwhile. Where nothing more may go, they are refused (EDQUOT),
 * whatever onfull says: else a user could choose not to be recorded.
 */
#include "daemon/keeper/keeper_parts.h"

#include "daemon/keeper/forget.h"
#include "daemon/system/report.h"
#include "maintain/usage/spent.h"
#include "store/tables/spenders.h"
#include "wayback/when.h"
#include <errno.h>
#include <glib.h>

#define LOOK (WB_WHEN_SECOND / 4)
/* It is measured for no more than a tenth of the time, and where nothing may go, for a thirtieth. */
#define REST 10
#define STUCK_US (5 * G_USEC_PER_SEC)
#define STUCK_REST 30
#define MEASURE_US (30 * G_USEC_PER_SEC)
/* It goes from so much below the limit on, and changes of the user are held back from there for so long at most. */
#define BELOW 8
#define HELD_BACK_US (20 * 1000)
/* At the limit, so many requests wait for it to go, and for so long. */
#define WAITERS 4
#define PATIENCE_US (10 * G_USEC_PER_SEC)
/* So much more than it has to goes: who goes on should not have to wait for each change. */
#define MORE 8

static uint64_t begins_at(uint64_t limit)
{
    return limit - limit / BELOW;
}

/* ---- changes --------------------------------------------------------------------------------- */

/* A few at a time: their workers are needed for others. */
static bool wait_for_room(struct wb_session *session, uint32_t uid, uint64_t limit)
{
    struct wb_keeper *keeper = session->keeper;
    int64_t until = g_get_monotonic_time() + PATIENCE_US;
    struct wb_spender spender;

    if (atomic_fetch_add(&keeper->users.waiting, 1) < WAITERS) {
        pthread_mutex_lock(&session->threads.lock);
        atomic_store(&keeper->users.wanted, true);
        pthread_cond_broadcast(&session->threads.wake);
        pthread_mutex_unlock(&session->threads.lock);
        while (wb_spenders_get(session->store, uid, &spender) && spender.bytes > limit && !spender.stuck &&
               !atomic_load(&keeper->ends) && g_get_monotonic_time() < until)
            g_usleep(5000);
    }
    atomic_fetch_sub(&keeper->users.waiting, 1);
    return !wb_spenders_get(session->store, uid, &spender) || spender.bytes <= limit;
}

bool wb_keeper_may_spend(struct wb_session *session, uint32_t uid)
{
    uint64_t limit = session->store ? atomic_load_explicit(&session->store->user_limit, memory_order_relaxed) : 0, over;
    struct wb_spender spender;

    if (limit == 0 || uid == 0 || !session->recording || !session->keeper ||
        !wb_spenders_get(session->store, uid, &spender) || spender.bytes <= begins_at(limit))
        return true;
    if (spender.bytes > limit)
        return !spender.stuck && wait_for_room(session, uid, limit);
    over = spender.bytes - begins_at(limit);
    if (!spender.stuck)
        g_usleep((gulong)((double)over / (double)(limit / BELOW + 1) * HELD_BACK_US));
    return true;
}

bool wb_keeper_has_spent(struct wb_session *session, uint32_t uid)
{
    struct wb_spender spender;

    return session->recording && uid != 0 && wb_spenders_get(session->store, uid, &spender) &&
           spender.bytes > atomic_load_explicit(&session->store->user_limit, memory_order_relaxed);
}

/* ---- measuring ------------------------------------------------------------------------------- */

static void set_user(void *data, uint32_t uid, uint64_t bytes)
{
    wb_spenders_set(data, uid, bytes);
}

/* `uid`: whose history is to go, into `spent`; 0: nobody's. */
static int measure(struct wb_keeper *keeper, uint32_t uid, int64_t now, struct wb_spent *spent)
{
    struct wb_store *store = keeper->session->store;
    int64_t begun = g_get_monotonic_time();
    int r;

    wb_spenders_begin(store);
    r = wb_spent_gather(spent, store, uid, now, wb_keeper_is_over, keeper->session);
    if (r < 0)
        return r;
    wb_spent_each(spent, set_user, store);
    wb_spenders_end(store);
    keeper->users.measured = g_get_monotonic_time();
    keeper->users.took = keeper->users.measured - begun;
    return 0;
}

static int measure_all(struct wb_keeper *keeper, int64_t now)
{
    struct wb_spent spent;
    int r = measure(keeper, 0, now, &spent);

    wb_spent_deinit(&spent);
    return r;
}

/* `wanted`: somebody waits. */
static bool is_due(const struct wb_keeper *keeper, const struct wb_spender *users, int64_t count, uint64_t limit,
                   bool wanted)
{
    int64_t since = g_get_monotonic_time() - keeper->users.measured;
    bool over = false, stuck = false;

    for (int64_t i = 0; i < count; i++) {
        over |= users[i].bytes > begins_at(limit) && !users[i].stuck;
        stuck |= users[i].stuck;
    }
    if (keeper->users.measured == 0 || (over && (wanted || since > keeper->users.took * REST)))
        return true;
    return since > MAX(stuck ? STUCK_US : MEASURE_US, keeper->users.took * STUCK_REST);
}

/* ---- what goes ------------------------------------------------------------------------------- */

static void warn_stuck(const struct wb_keeper *keeper, uint32_t uid, uint64_t bytes, uint64_t limit)
{
    g_autofree char *is = g_format_size_full(bytes, G_FORMAT_SIZE_IEC_UNITS);
    g_autofree char *most = g_format_size_full(limit, G_FORMAT_SIZE_IEC_UNITS);

    wb_log_msg(
        "%s: the history of the changes of user %u uses %s (user-max-size = %s), and the rest is protected by "
        "keep, thin, keep-versions or a snapshot, or belongs to files of other users, or to names; at the limit, "
        "changes of this user fail (EDQUOT); delete history with vrm or vprune",
        keeper->session->source, uid, is, most);
}

/* Forgets of one user's what may go. Whether anything went, or -errno. */
static int forget(struct wb_keeper *keeper, const struct wb_spender *user, uint64_t limit)
{
    struct wb_session *session = keeper->session;
    int64_t now = wb_keeper_now(keeper), age = wb_policy_shortest_hold(&keeper->policy), latest, beyond;
    uint64_t wanted = user->bytes - begins_at(limit) + limit / MORE, most;
    struct wb_spent spent;
    int r = measure(keeper, user->uid, now, &spent);

    latest = age < now - 1 ? now - 1 - age : 0;
    most = wb_room_between(spent.ages, session->store->header.created, latest);
    beyond = r == 0 && latest > 0 && most > 0
                 ? wb_room_choose(spent.ages, session->store->header.created, latest, wanted)
                 : 0;
    keeper->users.freed = 0;
    if (beyond > 0)
        r = wb_keeper_forget_of(keeper, beyond, &spent);
    wb_spent_deinit(&spent);
    return r < 0 ? r : keeper->users.freed > 0;
}

/* 0 or -errno. */
static int limit_user(struct wb_keeper *keeper, const struct wb_spender *user, uint64_t limit)
{
    struct wb_store *store = keeper->session->store;
    struct wb_spender left;
    int went = forget(keeper, user, limit), r = went > 0 ? measure_all(keeper, wb_keeper_now(keeper)) : went;
    bool stuck;

    if (r < 0)
        return r;
    wb_spenders_get(store, user->uid, &left);
    stuck = went == 0 && left.bytes > begins_at(limit);
    wb_spenders_set_stuck(store, user->uid, stuck);
    if (stuck && !user->stuck)
        warn_stuck(keeper, user->uid, left.bytes, limit);
    return 0;
}

int64_t wb_keeper_look_at_users(struct wb_keeper *keeper)
{
    struct wb_store *store = keeper->session->store;
    g_autofree struct wb_spender *users = NULL;
    struct statvfs device;
    uint64_t limit;
    int64_t count;
    bool wanted;
    int r = fstatvfs(store->dir_fd, &device) < 0 ? -errno : 0;

    wanted = atomic_exchange(&keeper->users.wanted, false);
    if (r < 0)
        return WB_WHEN_SECOND;
    limit = wb_room_bytes(&keeper->policy.user_max, &device);
    wb_spenders_limit(store, limit);
    if (limit == 0) {
        keeper->users.measured = 0;
        return WB_FOREVER;
    }
    count = wb_spenders_list(store, &users);
    if (count < 0 || !is_due(keeper, users, count, limit, wanted))
        return LOOK;
    r = measure_all(keeper, wb_keeper_now(keeper));
    g_free(users);
    count = wb_spenders_list(store, &users);
    for (int64_t i = 0; r == 0 && i < count; i++) {
        if (users[i].bytes > begins_at(limit))
            r = limit_user(keeper, &users[i], limit);
        else
            wb_spenders_set_stuck(store, users[i].uid, false);
    }
    return LOOK;
}
