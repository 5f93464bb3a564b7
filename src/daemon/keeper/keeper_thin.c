/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Single versions go as wayback.conf says: all logs are gone through, by a thread at the lowest priority, now and then.
 * A file is as before or as after whenever that ends, so it may at any time. With max-size or reserve, only where room
 * is short (keeper_room.c).
 */
#include "daemon/keeper/keeper_parts.h"

#include "daemon/keeper/forget.h"
#include "daemon/past/pages.h"
#include "daemon/system/report.h"
#include "wayback/when.h"
#include <errno.h>
#include <glib.h>
#include <inttypes.h>

/* It rests so many times as long as it took. */
#define REST 10
/* Where it could not be done: again after so long. */
#define AGAIN (10 * WB_WHEN_SECOND)
/* Both were read one after the other. */
#define CLOCK_SLACK (60 * WB_WHEN_SECOND)

struct work {
    struct wb_thin_driver driver;
    struct wb_keeper *keeper;
    struct wb_thinner *thinner;
    struct wb_thin_count count;
    bool hurry;
    int result;
};

static bool is_over(void *data)
{
    return wb_keeper_gives_up(((struct wb_thin_driver *)data)->session);
}

static bool ends(void *data)
{
    return wb_keeper_is_over(((struct wb_thin_driver *)data)->session);
}

static const struct wb_retention *rule_of(void *data, const char *path)
{
    const struct work *work = data;

    return &wb_policy_find(&work->keeper->policy, path, false)->retention;
}

static void *go_through(void *data)
{
    struct work *work = data;

    /* Where the room is short, those who write must not be able to outrun it. */
    if (!work->hurry)
        wb_keeper_be_idle();
    for (unsigned step = 0; work->result == 0 && step < WB_THIN_STEPS; step++)
        work->result = wb_thinner_step(work->thinner, step, &work->count);
    return NULL;
}

/* One message for as long as there are such files. */
static void warn_held(struct wb_keeper *keeper, const struct wb_thin_count *count)
{
    struct wb_session *session = keeper->session;
    char dir[512];

    if (count->held > 0 && !keeper->holding) {
        wb_thin_name_unknown(session->store, count->lacking, dir, sizeof(dir));
        wb_log_msg("%s: expired versions of %" PRIu64 " files are kept, because the damaged catalog of the directory "
                   "\"%s\" may refer to them; run vfsck",
                   session->source, count->held, dir);
    }
    keeper->holding = count->held > 0;
}

/* What no rule at all holds is for room to be made of, the oldest first, and no more of it than has to go. */
static int64_t since_of(const struct wb_policy *policy, int64_t now)
{
    int64_t age = wb_policy_hold(policy);

    return wb_policy_has_room(policy) && age > 0 && age < now ? now - age : 0;
}

static int thin(struct wb_keeper *keeper, int64_t now, bool hurry)
{
    struct work work = {.driver.session = keeper->session, .keeper = keeper, .hurry = hurry};
    struct wb_thin_options options;
    struct wb_store *store = keeper->session->store;
    pthread_t thread;
    int r;

    wb_forget_init_thin(&work.driver, &options);
    options.stop = hurry ? ends : is_over;
    options.since = since_of(&keeper->policy, now);
    if (keeper->policy.rules)
        options.rule = rule_of;
    else
        options.retention = keeper->policy.everything.retention;
    r = wb_thinner_begin(&work.thinner, store, &options, now);
    if (r < 0)
        return r;
    r = -pthread_create(&thread, NULL, go_through, &work);
    if (r == 0) {
        pthread_join(thread, NULL);
        /* Lists that are being returned may contain deleted versions. */
        if (work.count.dropped > 0)
            wb_control_pages_drop(keeper->session->past);
        r = work.result < 0 ? work.result : work.count.error;
        if (work.result == 0)
            warn_held(keeper, &work.count);
    }
    wb_thinner_free(work.thinner);
    return r;
}

/* Ages are counted from now: a clock that is ahead would make all of the past old. Where something was changed later
 * than now, it was ahead then, or is behind; how old anything is, is not known. */
static bool is_clock_sound(const struct wb_keeper *keeper, const struct wb_keeper_state *state)
{
    return !keeper->clock.doubted && state->newest - state->now < CLOCK_SLACK;
}

int64_t wb_keeper_look_at_versions(struct wb_keeper *keeper, const struct wb_keeper_state *state, bool hurry)
{
    int64_t pause = wb_keeper_thin_pause(&keeper->policy), begun = g_get_monotonic_time(), left;
    bool no_room;
    int r;

    if (pause == WB_FOREVER || !is_clock_sound(keeper, state))
        return WB_FOREVER;
    /* Somebody waits for a state that one of them may be needed for. */
    if (wb_keeper_pinned(keeper->session) > 0)
        return 0;
    left = keeper->thin_again - begun;
    if (left > 0)
        return left * 1000;
    r = thin(keeper, state->now, hurry);
    /* Somebody waits for room. */
    if (r == -ECANCELED)
        return 0;
    /* While somebody reads the store beside us, and may know of any moment (EBUSY), they stay, and nothing is wrong. */
    no_room = hurry && (r == -ENOSPC || r == -EDQUOT);
    wb_keeper_report_failure(keeper, r == -EBUSY || no_room ? 0 : r);
    if (no_room || (hurry && r == -EBUSY))
        pause = AGAIN;
    pause = MAX(pause, (g_get_monotonic_time() - begun) * 1000 * REST);
    keeper->thin_again = g_get_monotonic_time() + pause / 1000;
    return pause;
}
