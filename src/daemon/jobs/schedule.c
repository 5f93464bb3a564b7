/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "daemon/jobs/schedule.h"
#include "daemon/live/recording.h"

#include "daemon/jobs/compact.h"
#include "daemon/jobs/snapshot.h"
#include "daemon/keeper/keeper.h"
#include "daemon/options/config_file.h"
#include "daemon/system/report.h"

#include "policy/keeper.h"
#include "policy/schedule.h"
#include "wayback/when.h"
#include <errno.h>
#include <glib.h>
#include <string.h>
#include <time.h>

/* How often the file is looked at. */
#define WB_LOOK_SECONDS 4
/* More lines about one file help nobody. */
#define WB_MISTAKES_REPORTED 20

struct keeper {
    struct wb_session *session;
    char *path; /* of wayback.conf, for messages */
    struct wb_config config;
    struct wb_config_stamp stamp;
    int64_t checked; /* see struct wb_schedule_state */
    bool failing;    /* a failure was reported */
};

/* ---- the file -------------------------------------------------------------------------------- */

static void report_line(const char *line, void *data)
{
    unsigned *reported = data;

    if (++*reported <= WB_MISTAKES_REPORTED)
        wb_log_msg("%s", line);
}

static void read_config(struct keeper *keeper, bool first)
{
    struct wb_config config;
    unsigned reported = 0;
    int r;

    r = wb_config_file_read(keeper->session->store->dir_fd, WB_CONFIG_NAME, keeper->path, &config, report_line,
                            &reported);
    if (r < 0 && r != -ENOENT) {
        /* A file with mistakes must not cause history to be deleted, nor prevent access to the tree. */
        wb_log_msg("%s: not used; %s", keeper->path,
                   first ? "nothing is set until it is corrected" : "the former settings remain until it is corrected");
        wb_config_deinit(&config);
        return;
    }
    wb_config_deinit(&keeper->config);
    wb_compact_set(keeper->session, &config.compaction, &config.policy.reserve);
    wb_keeper_set(keeper->session, &config.policy);
    wb_recording_set(keeper->session, &config.recording);
    wb_store_set_commands(keeper->session->store, config.commands);
    atomic_store(&keeper->session->user_snapshots, config.user_snapshots);
    keeper->config = config;
    /* What is new in it begins now. */
    keeper->checked = 0;
}

/* ---- carrying out ---------------------------------------------------------------------------- */

/* Names of ordinary users are in nobody's way. */
static struct wb_scheduled *list_of(const struct wb_snapshots *all, size_t *ret_count)
{
    struct wb_scheduled *list = g_new(struct wb_scheduled, all->count + 1);

    *ret_count = 0;
    for (size_t i = 0; i < all->count; i++)
        if (wb_snapshot_is_keepers(&all->list[i]))
            list[(*ret_count)++] = (struct wb_scheduled){all->list[i].when, all->list[i].name, all->list[i].automatic};
    return list;
}

static int make(struct wb_session *session, const char *name)
{
    struct wb_snapshot snapshot = {
        .scope = session->store->header.root, .uid = geteuid(), .automatic = true,
        .name = name, .text = "", .path = "",
    };

    return wb_snapshot_take(session, &snapshot);
}

/* Where one could not be made, its forerunners stay. */
static int make_all(struct wb_session *session, const struct wb_schedule_plan *plan, bool failed[WB_PERIODS])
{
    int r, ret = 0;

    for (unsigned i = 0; i < plan->make_count; i++) {
        r = make(session, plan->make[i].name);
        /* Somebody took the name this moment: as good as any. */
        if (r == 0 || r == -EEXIST)
            continue;
        failed[plan->make[i].period] = true;
        ret = r;
    }
    return ret;
}

static int carry_out(struct wb_session *session, const struct wb_schedule_plan *plan)
{
    bool failed[WB_PERIODS] = {false};
    int ret = make_all(session, plan, failed), r;

    for (size_t i = 0; i < plan->expired_count; i++) {
        if (failed[plan->expired[i].period])
            continue;
        r = wb_snapshots_delete(session->store, plan->expired[i].when);
        if (r < 0)
            ret = r;
    }
    return ret;
}

/* Does what is due; when to look again. */
static int64_t look(struct keeper *keeper)
{
    struct wb_snapshots *all __attribute__((cleanup(wb_snapshots_unrefp))) = NULL;
    struct wb_store *store = keeper->session->store;
    struct wb_schedule_state state = {.now = wb_when_now(), .checked = keeper->checked};
    g_autofree struct wb_scheduled *list = NULL;
    struct wb_schedule_plan plan;
    int64_t again;
    size_t count;
    int r;

    state.last_change = wb_store_last_change(store);
    r = wb_snapshots_get(store, &all);
    if (r < 0)
        return WB_WHEN_PRESENT;
    list = list_of(all, &count);
    wb_schedule_decide(&keeper->config.snapshots, &state, list, count, &plan);
    r = carry_out(keeper->session, &plan);
    again = plan.again;
    wb_schedule_plan_deinit(&plan);
    if (r == 0)
        keeper->checked = state.now;
    if (r < 0 && !keeper->failing)
        wb_log_msg("%s: cannot create or delete an automatic snapshot: %s; trying again", keeper->session->source,
                   g_strerror(-r));
    keeper->failing = r < 0;
    return again;
}

/* ---- the thread ------------------------------------------------------------------------------ */

static void wait_until(struct wb_session_threads *threads, int64_t when)
{
    int64_t now = wb_when_now(), latest = now + WB_LOOK_SECONDS * WB_WHEN_SECOND;

    if (!threads->stop && !threads->reload)
        wb_session_wait(threads, MAX(MIN(when, latest) - now, 0));
}

static void *keep_schedule(void *data)
{
    struct wb_session *session = data;
    struct wb_session_threads *threads = &session->threads;
    struct keeper keeper = {.session = session};
    bool first = true;

    keeper.path = wb_config_file_path(session->source, session->options->store);
    wb_config_init(&keeper.config);
    pthread_mutex_lock(&threads->lock);
    while (!threads->stop) {
        bool reload = threads->reload;
        int64_t again;

        threads->reload = false;
        pthread_mutex_unlock(&threads->lock);
        wb_relocate_lock_shared(session);
        if (wb_config_file_changed(session->store->dir_fd, &keeper.stamp) || reload || first)
            read_config(&keeper, first);
        first = false;
        again = look(&keeper);
        wb_relocate_unlock(&session);
        pthread_mutex_lock(&threads->lock);
        wait_until(threads, again);
    }
    pthread_mutex_unlock(&threads->lock);
    g_free(keeper.path);
    wb_config_deinit(&keeper.config);
    return NULL;
}

int wb_schedule_start(struct wb_session *session)
{
    int r;

    if (!session->recording)
        return 0;
    /* What it says of the recording must be known before the first change. */
    wb_recording_load(session);
    r = pthread_create(&session->threads.schedule, NULL, keep_schedule, session);
    if (r != 0)
        return -r;
    session->threads.schedule_runs = true;
    return 0;
}

void wb_schedule_stop(struct wb_session *session)
{
    if (!session->threads.schedule_runs)
        return;
    pthread_mutex_lock(&session->threads.lock);
    session->threads.stop = true;
    pthread_cond_broadcast(&session->threads.wake);
    pthread_mutex_unlock(&session->threads.lock);
    pthread_join(session->threads.schedule, NULL);
    session->threads.schedule_runs = false;
}

void wb_schedule_reload(struct wb_session *session)
{
    pthread_mutex_lock(&session->threads.lock);
    session->threads.reload = true;
    pthread_cond_broadcast(&session->threads.wake);
    pthread_mutex_unlock(&session->threads.lock);
}
