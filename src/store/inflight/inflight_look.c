/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Queries about changes under way and about changes that failed. */
#include "store/inflight/inflight_parts.h"

#include <glib.h>
#include <sched.h>

bool wb_inflight_is_under_way(const struct wb_store *store, int64_t when)
{
    const struct wb_inflight *inflight = store->inflight;
    uint64_t busy;

    if (!inflight)
        return false;
    busy = inflight->busy & ~inflight->left_busy & ~inflight->set_aside;
    for (; busy; busy &= busy - 1)
        if (inflight->whens[__builtin_ctzll(busy)] <= when)
            return true;
    return false;
}

/* Reads the clock first: a change that takes a slot after that has another `when`, which stayed_quiet detects. */
int64_t wb_inflight_quiet(struct wb_store *store)
{
    int64_t quiet = wb_store_tick(store);

    if (!store->inflight)
        return wb_store_is_held(store) ? 0 : quiet;
    return wb_inflight_is_under_way(store, INT64_MAX) ? 0 : quiet;
}

bool wb_inflight_stayed_quiet(const struct wb_store *store, int64_t quiet)
{
    if (quiet == 0)
        return false;
    return store->inflight ? store->inflight->last == quiet : !wb_store_is_held(store);
}

/*
 * The change of a slot that is free here has ended, or will take the slot later and read the clock after that, hence
 * after this call.
 */
int64_t wb_inflight_low_water(struct wb_store *store)
{
    struct wb_inflight *inflight = store->inflight;
    int64_t horizon = wb_store_tick(store), when;
    uint64_t busy = inflight->busy & ~inflight->set_aside;

    if (inflight->left_busy)
        return 0; /* recovery has not run yet */
    for (; busy; busy &= busy - 1) {
        int slot = __builtin_ctzll(busy);

        /* The thread has read or will read the clock but has not stored it yet: a matter of nanoseconds. */
        while ((when = inflight->whens[slot]) == 0 && inflight->busy & UINT64_C(1) << slot)
            sched_yield();
        if (when > 0)
            horizon = MIN(horizon, when);
    }
    return horizon;
}

bool wb_inflight_has(struct wb_store *store, int64_t when)
{
    for (int i = 0; i < WB_INFLIGHT_SLOTS; i++)
        if (store->inflight->busy & UINT64_C(1) << i && store->inflight->whens[i] == when)
            return true;
    return false;
}

bool wb_inflight_is_idle(const struct wb_inflight *inflight)
{
    return inflight->busy == 0;
}

bool wb_inflight_lost_power(struct wb_store *store)
{
    return store->inflight->lost_power;
}

void wb_inflight_set_aside(struct wb_store *store, int slot, const struct wb_inflight_aside *aside)
{
    store->inflight->asides[slot] = *aside;
    atomic_fetch_or(&store->inflight->set_aside, UINT64_C(1) << slot);
}

bool wb_inflight_has_aside(const struct wb_store *store, int64_t when)
{
    const struct wb_inflight *inflight = store->inflight;

    /* A thread that takes a change for another attempt keeps its slot until it is done. */
    for (uint64_t busy = inflight ? inflight->busy : 0; busy; busy &= busy - 1) {
        int64_t of = inflight->whens[__builtin_ctzll(busy)];

        if (of > 0 && of <= when)
            return true;
    }
    return false;
}

bool wb_inflight_has_failed(const struct wb_store *store, int64_t when)
{
    const struct wb_inflight *inflight = store->inflight;
    uint64_t failed = inflight ? inflight->set_aside : 0;

    /* A change that was taken is no longer marked, but keeps its slot. Read this after the marks: its thread counts
     * first. */
    if (inflight && inflight->retries > 0)
        failed |= inflight->busy;
    for (; failed; failed &= failed - 1) {
        int64_t of = inflight->whens[__builtin_ctzll(failed)];

        if (of > 0 && of <= when)
            return true;
    }
    return false;
}

bool wb_inflight_retry_begin(struct wb_store *store)
{
    if (!store->inflight || store->inflight->set_aside == 0)
        return false;
    store->inflight->retries++;
    return true;
}

void wb_inflight_retry_end(struct wb_store *store)
{
    store->inflight->retries--;
}

int wb_inflight_take_aside(struct wb_store *store, struct wb_inflight_aside *ret)
{
    struct wb_inflight *inflight = store->inflight;
    uint64_t waiting = inflight ? inflight->set_aside : 0;

    while (waiting) {
        int slot = __builtin_ctzll(waiting);
        uint64_t bit = UINT64_C(1) << slot;

        /* The thread that cleared the bit owns the change. */
        if (atomic_fetch_and(&inflight->set_aside, ~bit) & bit) {
            *ret = inflight->asides[slot];
            return slot;
        }
        waiting &= ~bit;
    }
    return -1;
}
