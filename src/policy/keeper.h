/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

/*
 * Decides when the daemon prunes history, and which: computes a horizon (prune.h) from the policy (policy.h) and the
 * state of the store. A pure function: it opens no file and reads no clock. daemon/keeper/keeper.c carries it out.
 *
 * If the policy limits space (max-size, reserve), expired versions are kept until space runs low. Then
 * maintain/usage/room.h computes which horizon suffices.
 *
 * The horizon is one moment for the whole tree. If a snapshot of a directory, or a section with a longer age, stops
 * it, the logs that these do not cover are pruned `beyond` it (prune.h). Versions that a policy releases in the middle
 * of a history are thinned out (thin_store.h); with max-size or reserve only if space is low, and then before the
 * oldest history is pruned.
 */

#include "policy/policy.h"
#include "wayback/when.h"
#include <stdbool.h>
#include <stdint.h>

struct wb_keeper_state {
    int64_t now;    /* by the clock, as far as it is believed (clock.h) */
    int64_t newest; /* by the clock of the store: later than `now` where something was recorded with times to come */
    int64_t begins; /* of the history: earlier states were pruned, or never recorded */
    int64_t pinned; /* the moment of the oldest snapshot; 0: there is none */
    int64_t whole;  /* the same of those that cover the whole tree */
    int64_t beyond; /* up to where unprotected history was pruned beyond `begins`; 0: not known */
    bool full;      /* a change cannot be recorded for want of space */
};

struct wb_keeper_plan {
    int64_t horizon; /* to be forgotten before; 0: nothing is now */
    int64_t latest;  /* full, or max-size or reserve said: no later one than this for want of room; 0: none at all */
    int64_t present; /* from which the ages before `latest` are counted */
    int64_t beyond;  /* later than `horizon` or `latest`: what nothing protects may go up to here; 0: nothing */
    bool pinned;     /* a snapshot keeps what nothing else does */
    int64_t again;   /* when to look again; WB_FOREVER: when something is said */
};

/* The horizon moves by a part of the reach at a time: each time, every log is looked at. */
#define WB_KEEPER_PARTS 32
#define WB_KEEPER_STEP_LEAST (2 * WB_WHEN_SECOND)
#define WB_KEEPER_STEP_MOST (6 * 3600 * WB_WHEN_SECOND)

void wb_keeper_decide(const struct wb_policy *policy, const struct wb_keeper_state *state, struct wb_keeper_plan *plan);

/*
 * The interval at which to search for single versions that the policy releases before older ones; with max-size or
 * reserve the least interval. It is a part of the shortest age in the policy. WB_FOREVER: the policy releases none.
 */
#define WB_KEEPER_THIN_UNAGED (600 * WB_WHEN_SECOND) /* where only a number of versions is said */
int64_t wb_keeper_thin_pause(const struct wb_policy *policy);
