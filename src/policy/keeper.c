/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "policy/keeper.h"

/* ---- the horizon ----------------------------------------------------------------------------- */

static int64_t add(int64_t when, int64_t span)
{
    return when > INT64_MAX - span ? WB_FOREVER : when + span;
}

/* Not before the next tick of the clock: some change may be of this one. */
static void decide_latest(const struct wb_policy *policy, const struct wb_keeper_state *state,
                          struct wb_keeper_plan *plan)
{
    int64_t hold = wb_policy_hold(policy);

    if (hold >= state->now - 1)
        return;
    plan->latest = state->now - 1 - hold;
    /* What was recorded by a clock that was ahead is not old yet; where nothing has an age, it goes after the rest. */
    if (hold == 0 && state->newest > state->now && plan->latest < state->begins + WB_KEEPER_STEP_LEAST) {
        plan->present = state->newest;
        plan->latest = state->newest - 1;
    }
    plan->pinned = state->pinned > 0 && state->pinned < plan->latest;
    if (plan->pinned)
        plan->latest = state->pinned;
    if (plan->latest <= state->begins)
        plan->latest = 0;
}

/* `age`: no rule of any path holds older states; `horizon`: states before it are pruned anyway. Returns when to decide
 * again. */
static int64_t decide_beyond(const struct wb_keeper_state *state, int64_t age, int64_t horizon,
                             struct wb_keeper_plan *plan)
{
    int64_t step = CLAMP(age / WB_KEEPER_PARTS, WB_KEEPER_STEP_LEAST, WB_KEEPER_STEP_MOST);
    int64_t beyond = state->now - 1 > age ? state->now - 1 - age : 0, done = MAX(state->begins, state->beyond);

    if (age == WB_FOREVER)
        return WB_FOREVER;
    if (state->whole > 0)
        beyond = MIN(beyond, state->whole);
    if (beyond >= add(MAX(done, horizon), step))
        plan->beyond = beyond;
    return add(state->now, step);
}

void wb_keeper_decide(const struct wb_policy *policy, const struct wb_keeper_state *state, struct wb_keeper_plan *plan)
{
    int64_t reach = wb_policy_reach(policy), step, horizon, again = WB_FOREVER;

    *plan = (struct wb_keeper_plan){.present = state->now, .again = WB_FOREVER};
    if (wb_policy_has_room(policy) || state->full) {
        decide_latest(policy, state, plan);
        decide_beyond(state, wb_policy_shortest_hold(policy), plan->latest, plan);
        return;
    }
    if (reach == WB_FOREVER) {
        plan->again = decide_beyond(state, wb_policy_shortest_reach(policy), state->begins, plan);
        return;
    }
    step = CLAMP(reach / WB_KEEPER_PARTS, WB_KEEPER_STEP_LEAST, WB_KEEPER_STEP_MOST);
    plan->again = add(add(state->begins, reach), step);
    horizon = state->now > reach ? state->now - reach : 0;
    /* States before a snapshot can be pruned once it is deleted. No event announces that: the caller checks again. */
    if (state->pinned > 0 && horizon > state->pinned) {
        plan->pinned = true;
        plan->again = add(state->now, step);
        horizon = state->pinned;
    }
    /* If all other history is pruned up to the same moment, nothing is left to prune beyond it. */
    if (plan->pinned || wb_policy_shortest_reach(policy) < reach)
        again = decide_beyond(state, wb_policy_shortest_reach(policy), horizon, plan);
    if (horizon >= add(state->begins, step)) {
        plan->horizon = horizon;
        plan->again = add(state->now, step);
    }
    plan->again = MIN(plan->again, again);
}

/* ---- single versions ------------------------------------------------------------------------- */

static bool gives_up_earlier(const struct wb_retention *retention, int64_t reach)
{
    return retention->thin_count > 0 || retention->least > 0 || retention->most > 0 ||
           (retention->aged && retention->keep < reach);
}

/* Whether any rule lets single versions go before all others of their age. */
static bool gives_up_some(const struct wb_policy *policy)
{
    int64_t reach = wb_policy_has_room(policy) ? wb_policy_hold(policy) : wb_policy_reach(policy);
    bool some = gives_up_earlier(&policy->everything.retention, reach);

    for (guint i = 0; policy->rules && i < policy->rules->len; i++)
        some |= gives_up_earlier(&((struct wb_policy_rule *)g_ptr_array_index(policy->rules, i))->retention, reach);
    return some;
}

static int64_t shortest(const struct wb_retention *retention, int64_t least)
{
    if (retention->keep > 0)
        least = MIN(least, retention->keep);
    return retention->thin_count > 0 ? MIN(least, retention->thin[0].step) : least;
}

int64_t wb_keeper_thin_pause(const struct wb_policy *policy)
{
    int64_t age = shortest(&policy->everything.retention, WB_FOREVER);

    if (!gives_up_some(policy))
        return WB_FOREVER;
    for (guint i = 0; policy->rules && i < policy->rules->len; i++)
        age = shortest(&((struct wb_policy_rule *)g_ptr_array_index(policy->rules, i))->retention, age);
    return age == WB_FOREVER ? WB_KEEPER_THIN_UNAGED
                             : CLAMP(age / WB_KEEPER_PARTS, WB_KEEPER_STEP_LEAST, WB_KEEPER_STEP_MOST);
}
