/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* The threads beside libfuse's own that bring logs to the disk and keep the timeline. */
#include "daemon/core/session.h"

#include "daemon/jobs/survey.h"
#include "daemon/live/io.h"
#include "daemon/live/stage.h"
#include "daemon/system/report.h"

#include "capture/capture.h"
#include "store/cache/preclone.h"
#include "store/cache/gaps.h"
#include "store/cache/manifest_logs.h"
#include "store/tables/manifest.h"
#include "store/timeline/timeline.h"
#include "wayback/when.h"
#include <errno.h>
#include <glib.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

#define WB_SYNC_SECONDS 1
#define WB_TEND_SECONDS 5
#define WB_TIMELINE_SECONDS 2
#define WB_TIMELINE_NICE 10

/* ---- the thread that syncs ------------------------------------------------------------------- */

static void report_gaps(struct wb_session *session, bool *reported)
{
    bool open = wb_gaps_count(session->store) > 0;

    if (open && !*reported)
        wb_log_msg("the history accepts no records; changes continue without them (onfull=continue) and leave gaps");
    else if (!open && *reported)
        wb_log_msg("the history accepts records again; vstat shows its gaps");
    *reported = open;
}

struct syncing {
    bool gaps, content, failed; /* gaps were reported; content is to be synced; the last turn failed */
    int seconds;
};

static void sync_once(struct wb_session *session, struct syncing *state)
{
    WB_WITH_RELOCATE_LOCK(session);
    struct wb_store *store = session->store;
    bool changed;
    int r;

    state->seconds = (state->seconds + WB_SYNC_SECONDS) % WB_TEND_SECONDS;
    if (state->seconds == 0) {
        wb_capture_retry(store);
        wb_preclone_age(store);
        wb_stages_retry(session);
        report_gaps(session, &state->gaps);
        state->content |= wb_manifest_logs_complete(store, WB_MANIFEST_BUDGET) > 0;
    }
    /* Before the file system writes down by itself what the records are of. */
    changed = atomic_exchange(&session->dirty, false);
    state->content |= changed;
    r = changed && store->ordered ? wb_store_sync_all(store) : 0;
    if (r == 0 && state->seconds == 0 && state->content) {
        state->content = false;
        wb_manifest_logs_capture(store);
        r = store->ordered ? wb_store_sync_content(store) : wb_store_sync_all(store);
        if (r == 0)
            wb_manifest_write(store);
    }
    if (r < 0) {
        session->dirty = state->content = true;
        if (!state->failed)
            wb_log_msg("the history could not be synced; trying again every %d s", WB_SYNC_SECONDS);
    }
    state->failed = r < 0;
}

/* A FUSE server gets no request for sync(2) and syncfs(2). This thread makes logs reach the disk soon nevertheless. It
 * also closes descriptors that are not used any more, which no request says. */
static void *sync_now_and_then(void *data)
{
    struct wb_session *session = data;
    struct wb_session_threads *threads = &session->threads;
    struct syncing state = {0};

    pthread_mutex_lock(&threads->lock);
    while (!threads->stop) {
        wb_session_wait(threads, WB_SYNC_SECONDS * WB_WHEN_SECOND);
        if (threads->stop)
            continue;
        pthread_mutex_unlock(&threads->lock);
        if (session->recording)
            sync_once(session, &state);
        wb_io_close_unused(session);
        pthread_mutex_lock(&threads->lock);
    }
    pthread_mutex_unlock(&threads->lock);
    return NULL;
}

/* ---- the thread that keeps the timeline --------------------------------------------------------- */

/* Lists ask for what is missing: this is to leave little to them, and to a crash. */
static void *keep_timeline(void *data)
{
    struct wb_session *session = data;
    struct wb_session_threads *threads = &session->threads;

    /* Nobody waits for this one. */
    setpriority(PRIO_PROCESS, (id_t)gettid(), WB_TIMELINE_NICE);
    pthread_mutex_lock(&threads->lock);
    while (!threads->stop) {
        pthread_mutex_unlock(&threads->lock);
        wb_relocate_lock_shared(session);
        wb_timeline_pass(session->store);
        wb_relocate_unlock(&session);
        pthread_mutex_lock(&threads->lock);
        if (!threads->stop)
            wb_session_wait(threads, WB_TIMELINE_SECONDS * WB_WHEN_SECOND);
    }
    pthread_mutex_unlock(&threads->lock);
    return NULL;
}

int wb_session_start_background(struct wb_session *session)
{
    int r;

    if (!session->recording && !session->options->no_open)
        return 0;
    r = pthread_create(&session->threads.sync, NULL, sync_now_and_then, session);
    if (r != 0)
        return -r;
    session->threads.sync_runs = true;
    if (!session->recording)
        return 0;
    r = pthread_create(&session->threads.timeline, NULL, keep_timeline, session);
    if (r != 0)
        return -r;
    session->threads.timeline_runs = true;
    return wb_survey_start(session);
}

void wb_session_stop_background(struct wb_session *session)
{
    if (session->threads.timeline_runs)
        wb_timeline_stop(session->store);
    pthread_mutex_lock(&session->threads.lock);
    session->threads.stop = true;
    pthread_cond_broadcast(&session->threads.wake);
    pthread_mutex_unlock(&session->threads.lock);
    if (session->threads.sync_runs)
        pthread_join(session->threads.sync, NULL);
    if (session->threads.timeline_runs)
        pthread_join(session->threads.timeline, NULL);
    session->threads.sync_runs = session->threads.timeline_runs = false;
    wb_survey_stop(session);
}
