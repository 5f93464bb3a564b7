/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "policy/schedule.h"

#include "time/civil.h"
#include "wayback/when.h"
#include <glib.h>
#include <stdio.h>
#include <string.h>

#define DAY 86400
/* How far ahead slots are searched for: the waiting thread wakes up that often anyway. */
#define AHEAD (60 * WB_WHEN_SECOND)

/* ---- slots ----------------------------------------------------------------------------------- */

/* The same date `days` earlier. */
static struct wb_civil days_before(struct wb_civil date, int days)
{
    struct wb_civil ret;

    wb_civil_at_offset(wb_civil_utc(&date) - (int64_t)days * DAY, 0, &ret);
    return ret;
}

/* Since Monday. The epoch began on a Thursday. */
static int weekday(struct wb_civil date)
{
    int64_t days;

    date.hour = date.minute = date.second = 0;
    days = wb_civil_utc(&date) / DAY;
    return (int)((days % 7 + 10) % 7);
}

/* How many days before `date` the slot's day is: the last day of that kind, today perhaps. */
static int back(enum wb_period period, struct wb_civil date)
{
    if (period == WB_WEEKLY)
        return weekday(date);
    return period == WB_MONTHLY ? date.day - 1 : 0;
}

/* The last instant up to `seconds` at which the clocks showed `minutes` after midnight on a day of that kind. */
static int64_t calendar_slot(enum wb_period period, unsigned minutes, int64_t seconds)
{
    struct wb_civil date, at;
    int offset;
    int64_t slot = 0;

    wb_civil_at(seconds, &date, &offset);
    /* From tomorrow on, because a day may begin on the evening before where clocks are set back at midnight. */
    date = days_before(date, -1);
    for (int tries = 0; tries < 4; tries++) {
        date = days_before(date, back(period, date));
        at = date;
        at.hour = (int)(minutes / 60);
        at.minute = (int)(minutes % 60);
        at.second = 0;
        slot = wb_civil_local(&at);
        if (slot <= seconds)
            break;
        date = days_before(date, 1);
    }
    return slot;
}

int64_t wb_schedule_slot(const struct wb_schedule *schedule, enum wb_period period, int64_t seconds)
{
    struct wb_civil at;
    int64_t midnight;
    int offset;

    switch (period) {
    case WB_EVERY:
        midnight = calendar_slot(WB_DAILY, 0, seconds);
        return midnight + (seconds - midnight) / schedule->every * schedule->every;
    case WB_HOURLY:
        /* Not by the calendar: an hour that comes twice has two slots. */
        wb_civil_at(seconds, &at, &offset);
        return seconds - at.minute * 60 - at.second;
    default:
        return calendar_slot(period, schedule->at, seconds);
    }
}

static bool runs(const struct wb_schedule *schedule, enum wb_period period)
{
    return schedule->periods[period].set && schedule->periods[period].keep > 0;
}

/* When there is something to decide again. */
static int64_t next_slot(const struct wb_schedule *schedule, enum wb_period period, int64_t now)
{
    int64_t slot = wb_schedule_slot(schedule, period, now / WB_WHEN_SECOND), next;

    if (period == WB_EVERY) {
        /* The last one of a day may be shorter: then that of the next day. */
        next = wb_schedule_slot(schedule, period, slot + schedule->every);
        return MAX(next * WB_WHEN_SECOND, now + 1);
    }
    next = wb_schedule_slot(schedule, period, (now + AHEAD) / WB_WHEN_SECOND) * WB_WHEN_SECOND;
    return next > now ? next : now + AHEAD;
}

/* ---- what there is --------------------------------------------------------------------------- */

static bool is_date(const char *text)
{
    for (const char *form = "0000-00-00_0000"; *form; form++, text++)
        if (*form == '0' ? !g_ascii_isdigit(*text) : *text != *form)
            return false;
    return true;
}

/* One that was made for a schedule and has kept its name: renamed, it is somebody's own. */
static bool belongs_to(const struct wb_scheduled *snapshot, enum wb_period period)
{
    const char *kind = wb_period_name(period);
    size_t length = strlen(kind);

    return snapshot->automatic && strncmp(snapshot->name, kind, length) == 0 && snapshot->name[length] == '-' &&
           is_date(snapshot->name + length + 1);
}

static bool is_taken(const struct wb_scheduled *list, size_t count, const char *name)
{
    for (size_t i = 0; i < count; i++)
        if (strcmp(list[i].name, name) == 0)
            return true;
    return false;
}

/* "hourly-2026-11-21_1400"; the second of that name, because the clocks went back, has "-2". */
static void name_it(enum wb_period period, int64_t now, const struct wb_scheduled *list, size_t count,
                    char name[WB_AUTO_NAME_MAX])
{
    struct wb_civil at;
    char second[16] = "";
    int offset, length;

    wb_civil_at(now / WB_WHEN_SECOND, &at, &offset);
    if (period == WB_EVERY)
        snprintf(second, sizeof(second), "%02d", at.second);
    length = snprintf(name, WB_AUTO_NAME_MAX, "%s-%04d-%02d-%02d_%02d%02d%s", wb_period_name(period), at.year,
                      at.month, at.day, at.hour, at.minute, second);
    for (size_t i = 2; is_taken(list, count, name); i++)
        snprintf(name + length, WB_AUTO_NAME_MAX - (size_t)length, "-%zu", i);
}

/* ---- the decision ---------------------------------------------------------------------------- */

static bool is_due(const struct wb_schedule *schedule, const struct wb_schedule_state *state,
                   enum wb_period period, const struct wb_scheduled *newest)
{
    int64_t slot = wb_schedule_slot(schedule, period, state->now / WB_WHEN_SECOND) * WB_WHEN_SECOND;

    if (slot <= state->checked)
        return false;
    if (!newest)
        return true;
    return state->last_change > newest->when && (newest->when < slot || newest->when > state->now);
}

static int by_when(const void *a, const void *b)
{
    const struct wb_schedule_expired *x = a, *y = b;

    return (x->when > y->when) - (x->when < y->when);
}

static void decide_period(const struct wb_schedule *schedule, const struct wb_schedule_state *state,
                          enum wb_period period, const struct wb_scheduled *list, size_t count,
                          struct wb_schedule_plan *plan)
{
    size_t first = plan->expired_count, mine, keep = schedule->periods[period].keep;
    const struct wb_scheduled *newest = NULL;

    if (!schedule->periods[period].set)
        return;
    for (size_t i = 0; i < count; i++) {
        if (!belongs_to(&list[i], period))
            continue;
        plan->expired[plan->expired_count++] = (struct wb_schedule_expired){list[i].when, period};
        if (!newest || list[i].when > newest->when)
            newest = &list[i];
    }
    mine = plan->expired_count - first;
    if (keep > 0 && is_due(schedule, state, period, newest)) {
        plan->make[plan->make_count].period = period;
        name_it(period, state->now, list, count, plan->make[plan->make_count++].name);
        keep--;
    }
    /* Of all, the oldest go. */
    qsort(plan->expired + first, mine, sizeof(plan->expired[0]), by_when);
    plan->expired_count = first + (mine > keep ? mine - keep : 0);
    if (runs(schedule, period))
        plan->again = MIN(plan->again, next_slot(schedule, period, state->now));
}

void wb_schedule_decide(const struct wb_schedule *schedule, const struct wb_schedule_state *state,
                        const struct wb_scheduled *list, size_t count, struct wb_schedule_plan *ret)
{
    *ret = (struct wb_schedule_plan){.again = WB_WHEN_PRESENT};
    ret->expired = g_new(struct wb_schedule_expired, count + 1);
    for (enum wb_period period = 0; period < WB_PERIODS; period++)
        decide_period(schedule, state, period, list, count, ret);
}

void wb_schedule_plan_deinit(struct wb_schedule_plan *plan)
{
    g_clear_pointer(&plan->expired, g_free);
}
