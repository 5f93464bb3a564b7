/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Room. What is free on the device costs nothing to ask for, so that is done often; the history is measured when that
 * fell by half of what max-size leaves, and now and then. In between it may be what it was, and all that was recorded
 * since: where that is too much, it is measured, and changes wait. But only what was measured makes anything go: a file
 * that was deleted may take far less than its size. While the history grows, it is kept so far below max-size as it
 * grows until somebody can have looked again, and forgotten. Where that does not suffice, since changes come faster
 * than anything can be forgotten, each of them is held back for a moment (wb_keeper_throttle).
 *
 * Single versions that the policy gives up before others go first (thin_for_room). Where max-size is hard, and all that
 * is left is protected, ages and numbers of versions give way for the rest of a look (give_way_to_limit).
 */
#include "daemon/keeper/keeper_parts.h"

#include "daemon/system/report.h"
#include "maintain/usage/room.h"
#include "wayback/control.h"
#include "wayback/when.h"
#include <errno.h>
#include <glib.h>

/* How often is asked what is free; with reserve alone, before it can be too little by what a fast disk takes, in bytes
 * a second. */
#define LOOK (WB_WHEN_SECOND / 4)
#define LOOK_MOST (30 * WB_WHEN_SECOND)
#define FAST (4e9)
/* The history is measured at least so often, and for no more than a tenth of the time; half, if it may be too large. */
#define MEASURE_US (30 * G_USEC_PER_SEC)
#define REST 10
/* Where room is short, and nothing more may go, it is looked again after so long, or so many times what it took. */
#define HELD_US (5 * G_USEC_PER_SEC)
#define HELD_REST 30
/* The number of reclaimable bytes is no older than this; but gathering it takes at most a hundredth of the time. */
#define GATHER_US (120 * G_USEC_PER_SEC)
#define GATHER_REST 100
/* A little more goes than has to, so that it need not be done again at once. */
#define MORE 32
#define MORE_LEAST 4096
/* A change waits so long at most, when the history is larger than max-size by this part of it. */
#define HELD_BACK_US (10 * 1000)
#define HELD_BACK_PART 64
/* Before that, by what would be written until something went, but by no larger part of it. */
#define AHEAD_PART 16
/* By estimates: after so many horizons, nothing more is expected. */
#define ATTEMPTS 16

struct want {
    struct statvfs device;
    uint64_t limit, reserve; /* bytes; 0: not said */
    uint64_t free;
};

static int look_at_device(const struct wb_keeper *keeper, struct want *want)
{
    if (fstatvfs(keeper->session->store->dir_fd, &want->device) < 0)
        return -errno;
    want->limit = wb_room_bytes(&keeper->policy.max_size, &want->device);
    want->reserve = wb_room_bytes(&keeper->policy.reserve, &want->device);
    want->free = (uint64_t)want->device.f_bavail * want->device.f_frsize;
    return 0;
}

int wb_keeper_fill_budget(struct wb_session *session, struct wb_control_budget *ret)
{
    struct wb_keeper *keeper = session->keeper;
    int r = -ENODATA;
    struct want want;

    if (!keeper)
        return r;
    /* A new policy is taken with the same lock held. */
    pthread_mutex_lock(&session->threads.lock);
    if (keeper->has_policy)
        r = look_at_device(keeper, &want);
    if (r == 0)
        *ret = (struct wb_control_budget){
            .max_size = want.limit, .reserve = want.reserve,
            .keep = keeper->policy.max_size.hard          ? 0
                    : wb_policy_has_room(&keeper->policy) ? wb_policy_hold(&keeper->policy)
                                                          : wb_policy_reach(&keeper->policy)};
    pthread_mutex_unlock(&session->threads.lock);
    return r;
}

/* ---- who has to wait ------------------------------------------------------------------------- */

/* What is written until somebody can have looked again, and forgotten. */
static double growth_of(const struct wb_keeper_room *room)
{
    return room->rate * (double)(LOOK / 1000 + 2 * room->took + room->went) / G_USEC_PER_SEC;
}

/*
 * `free`: nothing can be done about it, and nobody is to wait for that. Forgetting begins further below max-size than
 * this: so it has ended before anybody waits who does not write faster than can be forgotten.
 */
static void set_pace(struct wb_keeper *keeper, const struct want *want, bool free)
{
    struct wb_keeper_room *room = &keeper->room;

    atomic_store(&keeper->pace.range, 0);
    if (free || want->limit == 0 || room->measured == 0)
        return;
    atomic_store(&keeper->pace.from, (int64_t)(room->grown + want->limit - room->size -
                                               (uint64_t)MIN(growth_of(room), (double)want->limit / AHEAD_PART)));
    atomic_store(&keeper->pace.range, (int64_t)MAX(want->limit / HELD_BACK_PART, 1));
}

void wb_keeper_throttle(struct wb_session *session)
{
    struct wb_keeper *keeper = session->keeper;
    int64_t range = keeper ? atomic_load_explicit(&keeper->pace.range, memory_order_relaxed) : 0, over;

    if (range == 0)
        return;
    over = (int64_t)atomic_load(&session->store->grown) - atomic_load(&keeper->pace.from);
    if (over > 0)
        g_usleep((gulong)(MIN(over, range) * HELD_BACK_US / range));
}

/* ---- what there is --------------------------------------------------------------------------- */

/* As it was measured, and all that came since: it takes no more than that. */
static uint64_t most_of(const struct wb_keeper *keeper)
{
    return keeper->room.size + atomic_load(&keeper->session->store->grown) - keeper->room.grown;
}

static bool is_due(const struct wb_keeper *keeper, const struct want *want)
{
    const struct wb_keeper_room *room = &keeper->room;
    int64_t now = g_get_monotonic_time();
    uint64_t gone = room->free > want->free ? room->free - want->free : 0;
    uint64_t left = want->limit > room->size ? want->limit - room->size : 0;
    bool over = most_of(keeper) > want->limit;

    if (room->measured == 0)
        return true;
    if (now - room->measured < room->took * (over && !atomic_load(&keeper->session->is_short) ? 1 : REST))
        return false;
    return now - room->measured >= MEASURE_US || gone > left / 2 || over;
}

static int measure(struct wb_keeper *keeper, const struct want *want, bool grew)
{
    struct wb_keeper_room *room = &keeper->room;
    int64_t begun = g_get_monotonic_time();
    uint64_t size, grown = atomic_load(&keeper->session->store->grown);
    int r = wb_room_measure(keeper->session->store, wb_keeper_is_over, keeper->session, &size);

    if (r < 0)
        return r;
    /* Who was held back meanwhile writes as fast as before as soon as he is not. */
    if (grew && room->measured > 0)
        room->rate = MAX((size > room->size ? (double)(size - room->size) : 0) * G_USEC_PER_SEC /
                             (double)MAX(begun - room->measured, 1),
                         room->rate / 2);
    room->size = size;
    room->grown = grown;
    room->free = want->free;
    room->measured = g_get_monotonic_time();
    room->took = room->measured - begun;
    return 0;
}

/* So many bytes too many. `ahead`: with those that will be, until somebody looks again. */
static uint64_t excess_of(const struct wb_keeper *keeper, const struct want *want, bool ahead)
{
    const struct wb_keeper_room *room = &keeper->room;
    uint64_t size = room->size + (ahead ? (uint64_t)MIN(2 * growth_of(room), (double)want->limit / 4) : 0);
    uint64_t over = want->limit && size > want->limit ? size - want->limit + want->limit / MORE : 0;
    uint64_t lacking = want->free < want->reserve ? want->reserve - want->free + want->reserve / MORE : 0;

    /* Protected history goes for max-size alone. */
    return keeper->ages_give_way ? over : MAX(over, lacking);
}

/* ---- what goes ------------------------------------------------------------------------------- */

bool wb_keeper_is_with_tree(const struct wb_session *session)
{
    struct stat st;

    return fstat(session->store->dir_fd, &st) == 0 && st.st_dev == session->src_dev;
}

static int gather(struct wb_keeper *keeper, const struct want *want, const struct wb_keeper_state *state,
                  const struct wb_keeper_plan *plan, struct wb_room_ages *ages)
{
    struct wb_session *session = keeper->session;
    int64_t begun = g_get_monotonic_time();
    int r;

    *ages = (struct wb_room_ages){.now = plan->present};
    keeper->room.gather_again = begun + GATHER_US;
    if (plan->latest == 0) {
        atomic_store(&keeper->reclaimable, 0);
        return 0;
    }
    /* Deleted files are where the tree is: where the store is elsewhere, they make no room there. */
    r = wb_room_gather(session->store, want->limit > 0 || wb_keeper_is_with_tree(session), wb_keeper_is_over, session,
                       ages);
    if (r < 0)
        return r;
    keeper->room.gather_again = g_get_monotonic_time();
    keeper->room.gather_again += MAX(GATHER_US, (keeper->room.gather_again - begun) * GATHER_REST);
    atomic_store(&keeper->reclaimable, want->reserve && wb_keeper_is_with_tree(session)
                                           ? wb_room_between(ages, state->begins, plan->latest)
                                           : 0);
    return 0;
}

static void report_full(struct wb_keeper *keeper, const struct want *want, bool full)
{
    struct wb_keeper_room *room = &keeper->room;
    bool large = want->limit && room->size > want->limit;
    g_autofree char *is = g_format_size_full(large ? room->size : want->free, G_FORMAT_SIZE_IEC_UNITS);
    g_autofree char *wanted = g_format_size_full(large ? want->limit : want->reserve, G_FORMAT_SIZE_IEC_UNITS);

    if (full && !room->warned_full)
        wb_log_msg("%s: %s %s, %s = %s; all remaining history is protected by %sa snapshot; free space elsewhere, or "
                   "run vprune or vrm",
                   keeper->session->source, large ? "the history uses" : "free space for the history:", is,
                   large ? "more than max-size" : "less than reserve", wanted,
                   keeper->ages_give_way ? "" : "keep, thin, keep-versions or ");
    room->warned_full = full;
}

static void report_nearly(struct wb_keeper *keeper, const struct want *want)
{
    struct wb_keeper_room *room = &keeper->room;
    g_autofree char *size = g_format_size_full(room->size, G_FORMAT_SIZE_IEC_UNITS);
    g_autofree char *limit = g_format_size_full(want->limit, G_FORMAT_SIZE_IEC_UNITS);

    if (room->warned_nearly || want->limit == 0 || room->size <= want->limit / 10 * 9)
        return;
    room->warned_nearly = true;
    wb_log_msg("%s: the history uses %s, more than 90 %% of max-size; at %s, its oldest part is deleted",
               keeper->session->source, size, limit);
}

/*
 * By the estimate the latest horizon gives back nothing. It leaves out what is about as old as the beginning or that
 * horizon, so it is tried all the same, once there may be something.
 */
static bool is_worth_trying(struct wb_keeper *keeper, const struct wb_keeper_state *state,
                            const struct wb_keeper_plan *plan)
{
    int64_t hold = wb_policy_hold(wb_keeper_policy(keeper));
    uint64_t grown = atomic_load(&keeper->session->store->grown) + 1;
    bool is_new = grown != keeper->room.tried;

    if (hold > 0 && !plan->pinned)
        return plan->latest - state->begins >=
               CLAMP(hold / WB_KEEPER_PARTS, WB_KEEPER_STEP_LEAST, WB_KEEPER_STEP_MOST);
    keeper->room.tried = grown;
    return is_new;
}

/* The horizon that suffices, or the latest that brings anything; 0: none does. Or -errno, in *r. */
static int64_t choose(struct wb_keeper *keeper, const struct want *want, uint64_t excess, bool first,
                      const struct wb_snapshots *all, struct wb_room_ages *ages, int *r)
{
    struct wb_keeper_state state;
    struct wb_keeper_plan plan;
    uint64_t most;

    wb_keeper_plan(keeper, all, &state, &plan);
    if (plan.latest == 0)
        return 0;
    if (first || wb_room_between(ages, state.begins, plan.latest) < excess)
        *r = gather(keeper, want, &state, &plan, ages);
    if (*r < 0)
        return 0;
    most = wb_room_between(ages, state.begins, plan.latest);
    if (most == 0)
        return is_worth_trying(keeper, &state, &plan) ? plan.latest : 0;
    /* These are estimates: should they be far too low, not everything may go for it. */
    return wb_room_choose(ages, state.begins, plan.latest, MIN(excess, most / 2 + MORE_LEAST));
}

/*
 * Where no horizon gives back anything: the moment up to which what no snapshot and no section protects is to go, or 0.
 * Or -errno, in *r. What is protected counts as well: where that was too much, the next one is later.
 */
static int64_t choose_beyond(struct wb_keeper *keeper, const struct want *want, uint64_t excess,
                             const struct wb_snapshots *all, struct wb_room_ages *ages, int *r)
{
    struct wb_session *session = keeper->session;
    struct wb_keeper_state state;
    struct wb_keeper_plan plan;
    int64_t from;
    uint64_t most;

    wb_keeper_plan(keeper, all, &state, &plan);
    if (plan.beyond == 0)
        return 0;
    *ages = (struct wb_room_ages){.now = plan.present};
    *r = wb_room_gather(session->store, want->limit > 0 || wb_keeper_is_with_tree(session), wb_keeper_is_over, session,
                        ages);
    if (*r < 0)
        return 0;
    from = MAX(state.begins, state.beyond);
    most = wb_room_between(ages, from, plan.beyond);
    return most == 0 ? plan.beyond : wb_room_choose(ages, from, plan.beyond, MIN(excess, most / 2 + MORE_LEAST));
}

/* Room is short: until something else becomes old, all logs need not be gone through again and again. */
static void rest(struct wb_keeper *keeper, const struct want *want, int64_t begun)
{
    int64_t now = g_get_monotonic_time();

    keeper->room.rests = now + MAX(HELD_US, (now - begun) * HELD_REST);
    set_pace(keeper, want, true);
    report_full(keeper, want, (want->limit && keeper->room.size > want->limit) || want->free < want->reserve);
    atomic_store(&keeper->session->is_short, true);
}

/* A snapshot less: the list of them is read again. */
#define LOOK_ANEW 2

/*
 * Nothing goes by steps. Before the snapshot of a user does, all that no snapshot protects goes at once: *beyond is up
 * to where. 1: that, or what there is to do is done; LOOK_ANEW; 0: there is no such snapshot; or -errno.
 */
static int give_way_to_room(struct wb_keeper *keeper, const struct want *want, const struct wb_snapshots *all,
                            int64_t *beyond)
{
    int64_t age = wb_policy_shortest_hold(wb_keeper_policy(keeper)), whole, now = wb_keeper_now(keeper);
    struct wb_keeper_state state;
    struct wb_keeper_plan plan;
    int r = wb_keeper_take_snapshot(keeper, NULL);

    if (r <= 0)
        return r;
    wb_keeper_plan(keeper, all, &state, &plan);
    whole = state.whole > 0 ? state.whole : INT64_MAX;
    *beyond = keeper->room.all_went ? 0 : MIN(now - 1 - age, whole);
    keeper->room.all_went = true;
    if (*beyond > MAX(state.begins, state.beyond))
        return 1;
    *beyond = 0;
    r = wb_keeper_take_snapshot(keeper, want->limit && keeper->room.size > want->limit ? "max-size" : "reserve");
    return r > 0 ? LOOK_ANEW : r;
}

/*
 * Nothing is left that may go. 1: with a hard max-size, what is protected may from now on; 0: it suffices, though it
 * will not for long; or -ENODATA.
 */
static int give_way_to_limit(struct wb_keeper *keeper, const struct want *want)
{
    struct wb_keeper_room *room = &keeper->room;

    if (!keeper->policy.max_size.hard || keeper->ages_give_way)
        return -ENODATA;
    if (room->size <= want->limit)
        return want->free < want->reserve ? -ENODATA : 0;
    if (!room->warned_hard) {
        g_autofree char *size = g_format_size_full(room->size, G_FORMAT_SIZE_IEC_UNITS);
        g_autofree char *limit = g_format_size_full(want->limit, G_FORMAT_SIZE_IEC_UNITS);

        wb_log_msg("%s: the history uses %s, more than max-size = %s hard: versions that keep, thin or keep-versions "
                   "protect are deleted, the oldest first", keeper->session->source, size, limit);
    }
    room->warned_hard = true;
    keeper->ages_give_way = true;
    room->all_went = false;
    return 1;
}

/* 0: nothing can be done now; 1: something can. */
static int stop_or_give_way(struct wb_keeper *keeper, const struct want *want, int64_t begun)
{
    int r = give_way_to_limit(keeper, want);

    if (r == 0)
        set_pace(keeper, want, false);
    else if (r < 0)
        rest(keeper, want, begun);
    return MAX(r, 0);
}

/*
 * One horizon. 1: it may have to be another one, later; LOOK_ANEW; 0: it suffices, or there is none; or -errno.
 * `first`: what is written until somebody looks again counts, and `ages` are gathered. What goes by it is before the
 * beginning then, and does not count in them any more: they are gathered anew where what does is too little.
 */
static int make_room(struct wb_keeper *keeper, const struct wb_snapshots *all, bool first, struct wb_room_ages *ages)
{
    struct wb_keeper_room *room = &keeper->room;
    int64_t horizon, beyond, begun = g_get_monotonic_time();
    struct want want;
    uint64_t excess;
    int r = look_at_device(keeper, &want);

    if (r < 0)
        return r;
    excess = excess_of(keeper, &want, first);
    if (excess > 0 && begun < room->rests)
        return 0;
    horizon = excess > 0 ? choose(keeper, &want, excess, first, all, ages, &r) : 0;
    beyond = r == 0 && horizon == 0 && excess > 0 ? choose_beyond(keeper, &want, excess, all, ages, &r) : 0;
    if (r < 0)
        return r;
    if (horizon == 0 && beyond == 0 && excess > 0) {
        r = give_way_to_room(keeper, &want, all, &beyond);
        if (r == 0)
            return stop_or_give_way(keeper, &want, begun);
        if (beyond == 0)
            return r;
    }
    atomic_store(&keeper->session->is_short, false);
    if (horizon == 0 && beyond == 0) {
        set_pace(keeper, &want, false);
        report_full(keeper, &want, false);
        return 0;
    }
    begun = g_get_monotonic_time();
    r = wb_keeper_forget(keeper, horizon > 0 ? horizon : keeper->session->store->header.created, beyond, true);
    room->went = g_get_monotonic_time() - begun;
    if (r == 0)
        r = look_at_device(keeper, &want);
    if (r == 0)
        r = measure(keeper, &want, false);
    set_pace(keeper, &want, r < 0);
    return r < 0 ? r : 1;
}

/*
 * What is given up before others goes before the oldest of all: of what is past its age, it is wanted least. All of it
 * does that is at that moment; 1: it was looked for, 0 or -errno.
 */
static int thin_for_room(struct wb_keeper *keeper, const struct wb_snapshots *all, struct want *want)
{
    int64_t again = keeper->thin_again;
    struct wb_keeper_state state;
    struct wb_keeper_plan plan;
    int r;

    if (excess_of(keeper, want, true) == 0)
        return 0;
    wb_keeper_plan(keeper, all, &state, &plan);
    wb_keeper_look_at_versions(keeper, &state, true);
    if (keeper->thin_again == again)
        return 0;
    r = look_at_device(keeper, want);
    if (r == 0 && want->limit > 0)
        r = measure(keeper, want, false);
    return r < 0 ? r : 1;
}

static int64_t pause_of(const struct wb_keeper *keeper)
{
    int64_t rests = (keeper->room.rests - g_get_monotonic_time()) * 1000;
    struct want want;

    if (atomic_load(&keeper->session->is_short) && rests > 0)
        return MIN(rests, LOOK_MOST);
    if (look_at_device(keeper, &want) < 0 || want.limit > 0 || want.free < want.reserve)
        return LOOK;
    return (int64_t)CLAMP((double)(want.free - want.reserve) / FAST * WB_WHEN_SECOND, (double)LOOK, (double)LOOK_MOST);
}

bool wb_keeper_is_short(struct wb_session *session)
{
    return atomic_load(&session->is_short);
}

int64_t wb_keeper_look_at_room(struct wb_keeper *keeper, const struct wb_snapshots *all)
{
    g_autofree struct wb_room_ages *ages = g_try_new(struct wb_room_ages, 1);
    struct wb_keeper_state state;
    struct wb_keeper_plan plan;
    struct want want;
    int r = ages ? look_at_device(keeper, &want) : -ENOMEM, left = 0;

    if (r == 0 && want.limit > 0 && is_due(keeper, &want))
        r = measure(keeper, &want, true);
    if (r == 0)
        report_nearly(keeper, &want);
    if (r == 0)
        r = thin_for_room(keeper, all, &want);
    keeper->room.all_went = false;
    for (unsigned i = 0; r >= 0 && i < ATTEMPTS; i++) {
        r = left = make_room(keeper, all, i == 0, ages);
        if (r <= 0 || r == LOOK_ANEW)
            break;
    }
    if (r < 0)
        atomic_store(&keeper->pace.range, 0);
    keeper->ages_give_way = false;
    wb_keeper_plan(keeper, all, &state, &plan);
    if (r >= 0 && want.reserve > 0 && g_get_monotonic_time() > keeper->room.gather_again)
        r = gather(keeper, &want, &state, &plan, ages);
    return r < 0 ? WB_WHEN_SECOND : left > 0 ? LOOK : pause_of(keeper);
}
