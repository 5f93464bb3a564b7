/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

/*
 * Decides which automatic snapshots are to be made and deleted now. A pure function: its result depends only on its
 * arguments and the local time zone. daemon/jobs/schedule.c carries it out.
 *
 * Each kind has a grid of slots: the full hours; the days' time `at`; Mondays; the 1st of months; every so many
 * seconds since midnight. In the slot that the present lies in, one snapshot of that kind is made, at once,
 * unless there is one already, or the tree has not changed since the newest one. A slot that was looked at is
 * over: what changes in it later belongs to the next. The slot of a present when nobody looked (the tree was not
 * mounted) is looked at at the next opportunity; slots before it are not made up for.
 *
 * Clocks: slots are a matter of the wall clock, moments of snapshots of the store's, which never
 * goes back. Where the wall clock was set back, the store's is ahead of it, and so are moments; they
 * say nothing of the slot then.
 */

#include "policy/config.h"
#include <stddef.h>

#define WB_AUTO_NAME_MAX 64

/* A snapshot that there is, of any kind. */
struct wb_scheduled {
    int64_t when;
    const char *name;
    bool automatic;
};

struct wb_schedule_state {
    int64_t now;         /* the wall clock, ns */
    int64_t checked;     /* `now` of the last decision that was carried out; 0: nobody has looked yet */
    int64_t last_change; /* when the tree changed last, by the store's clock */
};

struct wb_schedule_plan {
    struct {
        enum wb_period period;
        char name[WB_AUTO_NAME_MAX]; /* free among those there are */
    } make[WB_PERIODS];
    unsigned make_count;
    struct wb_schedule_expired {
        int64_t when;
        enum wb_period period;
    } *expired; /* to be deleted after the others were made, oldest first; g_free */
    size_t expired_count;
    int64_t again; /* the next slot begins then, or later; WB_WHEN_PRESENT: never */
};

/* `list`: any order; only automatic ones are counted and deleted, and only under the names they were given. */
void wb_schedule_decide(const struct wb_schedule *schedule, const struct wb_schedule_state *state,
                        const struct wb_scheduled *list, size_t count, struct wb_schedule_plan *ret);
void wb_schedule_plan_deinit(struct wb_schedule_plan *plan);

/* Where the slot of an instant begins; both in seconds since the epoch. */
int64_t wb_schedule_slot(const struct wb_schedule *schedule, enum wb_period period, int64_t seconds);
