/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "daemon/jobs/compact.h"

#include "daemon/keeper/keeper.h"
#include "daemon/core/node.h"
#include "maintain/rewrite/compact.h"
#include "maintain/rewrite/tried.h"
#include "store/object/catalog_path.h"
#include "wayback/when.h"
#include "store/graveyard/body_sums.h"
#include <glib.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

/* Of linux/ioprio.h: this process, and only when nobody else wants the disk. */
#define IOPRIO_SELF 1
#define IOPRIO_IDLE (3 << 13)
/* Of bundles, nothing is done until no request came for so long (us); but a step is, after so many times that. */
#define QUIET 10000
#define PATIENCE 50

struct packer {
    struct wb_session *session;
    unsigned shard;
    /* Logs last written in (considered, now - rest] have their turn: each once after it came to rest, so what does not
     * get smaller is not tried again and again. All of them after the mount: nothing is known of them then. */
    int64_t considered[WB_SHARDS];
    struct wb_compaction compaction;
    GHashTable *tried; /* see struct wb_compact */
    struct wb_object dir; /* whose path is */
    char *path;
    struct wb_catalog_places *places;
};

void wb_compact_set(struct wb_session *session, struct wb_compaction *compaction, const struct wb_room *reserve)
{
    struct wb_compaction *next = g_memdup2(compaction, sizeof(*compaction));

    next->reserve = *reserve;
    *compaction = (struct wb_compaction){0};
    pthread_mutex_lock(&session->threads.lock);
    if (session->compact_next)
        wb_compaction_deinit(session->compact_next);
    g_free(session->compact_next);
    session->compact_next = next;
    atomic_store(&session->compact_rest, wb_compaction_does_something(next) ? next->rest : 0);
    pthread_mutex_unlock(&session->threads.lock);
}

/* With threads->lock held. */
static void take_compaction(struct packer *packer)
{
    if (!packer->session->compact_next)
        return;
    wb_compaction_deinit(&packer->compaction);
    packer->compaction = *packer->session->compact_next;
    g_clear_pointer(&packer->session->compact_next, g_free);
    /* It may be tried otherwise now. */
    g_hash_table_remove_all(packer->tried);
}

/* Bytes of deleted files that are read for their checksums before logs are looked at again. */
#define SUM_AT_ONCE (UINT64_C(16) << 20)

static bool is_over(void *data)
{
    struct wb_session *session = data;

    /* Somebody may have said that nothing is to be packed any more. */
    return atomic_load(&session->compact_ends) || atomic_load(&session->relocate_wanted) ||
           atomic_load(&session->compact_rest) == 0;
}

/* Requests come first: at most a step of milliseconds is under way when one comes. */
static void give_way(void *data)
{
    struct wb_session *session = data;

    for (unsigned i = 0; i < PATIENCE && !is_over(session) && atomic_exchange(&session->busy, false); i++)
        g_usleep(QUIET);
}

/* Of a directory that is gone only the names are known that were in it. */
static enum wb_compact_mode mode_of(void *data, struct wb_object dir, const char *name)
{
    struct packer *packer = data;
    const struct wb_path_rule *rule;
    g_autofree char *path = NULL;

    if (!packer->compaction.rules || wb_object_is_none(dir))
        return packer->compaction.mode;
    if (!wb_object_equal(dir, packer->dir)) {
        g_clear_pointer(&packer->path, g_free);
        packer->dir = dir;
        if (wb_catalog_path_find(packer->session->store, packer->places, dir, NULL, &packer->path) != 0)
            packer->path = NULL;
    }
    if (name)
        path = packer->path && *packer->path ? g_strconcat(packer->path, "/", name, NULL) : g_strdup(name);
    else
        path = g_strdup(packer->path ? packer->path : "");
    rule = wb_path_rules_find(packer->compaction.rules, path, !name);
    return rule ? rule->setting : packer->compaction.mode;
}

static void pack_folder(struct packer *packer, unsigned rest)
{
    struct wb_compact compact = {.flags = WB_COMPACT_IDLE,
                                 .before = WB_WHEN_PRESENT,
                                 .stop = is_over,
                                 .stop_data = packer->session,
                                 .in_use = wb_compact_in_use,
                                 .in_use_data = packer->session,
                                 .mode = mode_of,
                                 .mode_data = packer,
                                 .mode_of_logs = true,
                                 .tried = packer->tried,
                                 .places = packer->places,
                                 /* Where all has gone that may, nothing goes for it, and it makes room. */
                                 .reserve = wb_keeper_is_short(packer->session) ? NULL : &packer->compaction.reserve,
                                 .give_way = give_way,
                                 .give_way_data = packer->session};
    int64_t *considered = &packer->considered[packer->shard];
    int64_t until = wb_when_now() - (int64_t)rest * WB_WHEN_SECOND;
    int r;

    /* It may have moved since. */
    packer->dir = (struct wb_object){0};
    wb_compact_begin(&compact, packer->session->store);
    r = wb_compact_shard(packer->session->store, &compact, packer->shard, *considered, until);
    r = wb_compact_finish(&compact, r);
    /* What had no turn, or no room, has its turn the next time round. */
    if (r != -ECANCELED && r != -ENOSPC && r != -EDQUOT && !compact.lacked_room && until > *considered)
        *considered = until;
    packer->shard = (packer->shard + 1) % WB_SHARDS;
}

/* All folders in about four times as long as a log has to rest, but none more often than necessary. */
static int64_t pause_of(unsigned rest)
{
    int64_t pause = rest * WB_WHEN_SECOND / 64;

    return CLAMP(pause, WB_WHEN_SECOND / 50, 10 * WB_WHEN_SECOND);
}

static bool is_ending(void *data)
{
    struct wb_session *session = data;

    return atomic_load(&session->compact_ends) || atomic_load(&session->relocate_wanted);
}

/* Some of what was deleted; the rest has its turn the next time. */
static void sum_bodies(struct wb_session *session)
{
    struct wb_body_summing summing = {.in_use = wb_compact_in_use, .stop = is_ending, .data = session,
                                      .bytes = SUM_AT_ONCE};

    wb_relocate_lock_shared(session);
    wb_body_sums_make(session->store, &summing);
    wb_relocate_unlock(&session);
}

static void *pack_what_rests(void *data)
{
    struct wb_session *session = data;
    struct wb_session_threads *threads = &session->threads;
    struct packer packer = {.session = session, .tried = wb_tried_new(), .places = wb_catalog_places_new()};

    setpriority(PRIO_PROCESS, (id_t)gettid(), 19);
    syscall(SYS_ioprio_set, IOPRIO_SELF, 0, IOPRIO_IDLE);
    pthread_mutex_lock(&threads->lock);
    while (!threads->stop) {
        unsigned rest = atomic_load(&session->compact_rest);

        wb_session_wait(threads, rest ? pause_of(rest) : WB_WHEN_SECOND);
        if (threads->stop)
            continue;
        pthread_mutex_unlock(&threads->lock);
        sum_bodies(session);
        pthread_mutex_lock(&threads->lock);
        if (threads->stop || rest == 0)
            continue;
        take_compaction(&packer);
        pthread_mutex_unlock(&threads->lock);
        wb_relocate_lock_shared(session);
        pack_folder(&packer, rest);
        wb_relocate_unlock(&session);
        pthread_mutex_lock(&threads->lock);
    }
    pthread_mutex_unlock(&threads->lock);
    wb_compaction_deinit(&packer.compaction);
    g_free(packer.path);
    g_hash_table_unref(packer.tried);
    wb_catalog_places_free(packer.places);
    return NULL;
}

int wb_compact_start(struct wb_session *session)
{
    int r;

    if (!session->recording)
        return 0;
    r = pthread_create(&session->threads.compact, NULL, pack_what_rests, session);
    if (r != 0)
        return -r;
    session->threads.compact_runs = true;
    return 0;
}

void wb_compact_stop(struct wb_session *session)
{
    if (!session->threads.compact_runs)
        return;
    atomic_store(&session->compact_ends, true);
    pthread_mutex_lock(&session->threads.lock);
    session->threads.stop = true;
    pthread_cond_broadcast(&session->threads.wake);
    pthread_mutex_unlock(&session->threads.lock);
    pthread_join(session->threads.compact, NULL);
    session->threads.compact_runs = false;
    if (session->compact_next)
        wb_compaction_deinit(session->compact_next);
    g_clear_pointer(&session->compact_next, g_free);
}
