/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "keep/keeper.h"

/* ---- the horizon ----------------------------------------------------------------------------- */

static int64_t add(int64_t when, int64_t span)
{
    return when > INT64_MAX - span ? WB_FOREVER : when + span;
}

void wb_keeper_decide(const struct wb_policy *policy, const struct wb_keeper_state *state, struct wb_keeper_plan *plan)
{
    int64_t reach = wb_policy_reach(policy), step, horizon;

    *plan = (struct wb_keeper_plan){.again = WB_FOREVER};
    if (reach == WB_FOREVER)
        return;
    step = CLAMP(reach / WB_KEEPER_PARTS, WB_KEEPER_STEP_LEAST, WB_KEEPER_STEP_MOST);
    plan->again = add(add(state->begins, reach), step);
    horizon = state->now > reach ? state->now - reach : 0;
    /* States before a snapshot go with it. Snapshots come and go, of which nobody tells: it is looked at again. */
    if (state->pinned > 0 && horizon > state->pinned) {
        plan->pinned = true;
        plan->again = add(state->now, step);
        horizon = state->pinned;
    }
    if (horizon < add(state->begins, step))
        return;
    plan->horizon = horizon;
    plan->again = add(state->now, step);
}

/* ---- what is left ---------------------------------------------------------------------------- */

static bool gives_up_earlier(const struct wb_retention *retention, int64_t reach)
{
    return retention->thin_count > 0 || retention->least > 0 || retention->most > 0 ||
           (retention->aged && retention->keep < reach);
}

static bool is_limited(const struct wb_room *room)
{
    return room->bytes > 0 || room->percent > 0;
}

char *wb_keeper_unmet(const struct wb_policy *policy)
{
    int64_t reach = wb_policy_reach(policy);
    bool single = gives_up_earlier(&policy->everything.retention, reach);
    bool room = is_limited(&policy->max_size) || is_limited(&policy->reserve);
    g_autofree char *age = wb_span_print(reach);

    for (guint i = 0; policy->rules && i < policy->rules->len; i++)
        single |= gives_up_earlier(&((struct wb_policy_rule *)g_ptr_array_index(policy->rules, i))->retention, reach);
    if (!single && !room)
        return NULL;
    return g_strdup_printf("%s%s%s not carried out by this version: %s%s",
                           single ? "to let single versions go before others (thin, keep-versions, sections)" : "",
                           single && room ? ", max-size and reserve are" : single ? " is" : "",
                           single ? "" : "max-size and reserve are",
                           reach == WB_FOREVER ? "all of the history stays until vprune is asked to forget"
                                               : "all versions stay that were replaced less than this ago: ",
                           reach == WB_FOREVER ? "" : age);
}
