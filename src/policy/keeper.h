/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

/*
 * When the daemon forgets by itself, and what: policy (policy.h) and the state of the store to a horizon (prune.h). A
 * pure function: no file is opened, no clock is read. Something else acts (daemon/keeper/keeper.c).
 *
 * Where the policy tells how much room there is to be (max-size, reserve), what is past its age stays until room is
 * short. Then maintain/usage/room.h tells which horizon suffices.
 *
 * The horizon is one moment for the whole tree. Where a snapshot of a directory, or a section with a longer age, stops
 * it, the logs of what these do not cover are forgotten `beyond` it (prune.h). What a policy gives up amid a history is
 * thinned out (thin_store.h); with max-size or reserve only where room is short, and then before the oldest of all.
 */

#include "policy/policy.h"
#include "wayback/when.h"
#include <stdbool.h>
#include <stdint.h>

struct wb_keeper_state {
    int64_t now;    /* by the clock, as far as it is believed (clock.h) */
    int64_t newest; /* by the clock of the store: later than `now` where something was recorded with times to come */
    int64_t begins; /* the history: what was before was forgotten, or never was */
    int64_t pinned; /* the moment of the oldest snapshot; 0: there is none */
    int64_t whole;  /* the same of those that cover the whole tree */
    int64_t beyond; /* up to where what nothing protects was forgotten beyond `begins`; 0: not known */
    bool full;      /* somebody cannot record a change for want of room */
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
 * Single versions that it gives up before others are looked for at such intervals, with max-size or reserve at most
 * so often: a part of the shortest age that it tells. WB_FOREVER: it gives up none.
 */
#define WB_KEEPER_THIN_UNAGED (600 * WB_WHEN_SECOND) /* where only a number of versions is said */
int64_t wb_keeper_thin_pause(const struct wb_policy *policy);
