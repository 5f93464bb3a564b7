/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Decides which history the policy allows to be deleted, and deletes it by pruning, or by deleting a snapshot. */
#include "daemon/keeper/keeper_parts.h"

#include "daemon/keeper/forget.h"
#include "daemon/system/report.h"
#include "maintain/usage/spent.h"
#include "store/timeline/timeline.h"
#include "wayback/when.h"
#include <errno.h>
#include <glib.h>
#include <stdatomic.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

/* From linux/ioprio.h: this thread, and only when no other process needs the disk. */
#define IOPRIO_SELF 1
#define IOPRIO_IDLE (3 << 13)
/* The last step removes deleted files, for which it locks the tree; those before it do not. */
#define LAST_STEP (WB_PRUNE_STEPS - 1)

struct work {
    struct wb_prune *prune;
    struct wb_prune_count count;
    bool hurry;
    int result;
};

bool wb_keeper_is_over(void *data)
{
    const struct wb_session *session = data;

    return atomic_load(&session->keeper->ends);
}

/* Only root may raise the priority of the thread again. So the thread ends, and its work is continued later. */
bool wb_keeper_gives_up(void *data)
{
    const struct wb_session *session = data;

    return wb_keeper_is_over(data) || atomic_load(&session->relocate_wanted) || atomic_load(&session->keeper->pleaded);
}

void wb_keeper_be_idle(void)
{
    setpriority(PRIO_PROCESS, (id_t)gettid(), 19);
    syscall(SYS_ioprio_set, IOPRIO_SELF, 0, IOPRIO_IDLE);
}

static void *sift(void *data)
{
    struct work *work = data;

    /* If space is short, processes that write must not use it up faster than this thread frees it. */
    if (!work->hurry)
        wb_keeper_be_idle();
    for (unsigned step = 0; work->result == 0 && step < LAST_STEP; step++)
        work->result = wb_prune_step(work->prune, step, &work->count);
    return NULL;
}

/* Deletes the history before the published horizon. */
static int take_away(struct wb_keeper *keeper, struct wb_prune *prune, bool hurry)
{
    struct work work = {.prune = prune, .hurry = hurry};
    pthread_t thread;
    int r = pthread_create(&thread, NULL, sift, &work);

    if (r != 0)
        return -r;
    pthread_join(thread, NULL);
    if (work.result == 0)
        work.result = wb_prune_step(prune, LAST_STEP, &work.count);
    keeper->users.freed = work.count.log_bytes + work.count.image_bytes + work.count.body_bytes;
    return work.result < 0 ? work.result : work.count.error;
}

/* The moment up to which the policy allows the history of a path to expire. Called while the keeper waits. */
static int64_t limit_of(void *data, const char *path, bool is_directory)
{
    struct wb_session *session = data;
    const struct wb_keeper *keeper = session->keeper;
    const struct wb_policy *policy = wb_keeper_policy(keeper);
    const struct wb_retention *retention = &wb_policy_find(policy, path, is_directory)->retention;
    bool short_of = wb_policy_has_room(policy) || keeper->full || keeper->for_user;
    int64_t age = short_of ? wb_retention_hold(retention) : wb_retention_reach(retention);

    return age < keeper->limits_now ? keeper->limits_now - age : 0;
}

/* `spent`: only the history that it lists; NULL: all. */
static int forget(struct wb_keeper *keeper, int64_t horizon, int64_t beyond, bool hurry, struct wb_spent *spent)
{
    struct wb_session *session = keeper->session;
    struct wb_prune_options options;
    struct wb_error why = {""};
    struct wb_prune *prune;
    uint64_t snapshots;
    int r;

    wb_forget_init(session, &options);
    options.before = horizon;
    options.beyond = beyond;
    options.limit = wb_keeper_policy(keeper)->rules ? limit_of : NULL;
    options.hurry = hurry;
    options.stop = hurry ? wb_keeper_is_over : wb_keeper_gives_up;
    options.pinned = wb_keeper_pinned;
    options.own_limit = spent ? wb_spent_limit : NULL;
    options.own_data = spent;
    keeper->limits_now = beyond > 0 ? wb_keeper_now(keeper) : 0;
    r = wb_prune_begin(&prune, session->store, &options, &snapshots, &why);
    if (r < 0)
        return r;
    if (!spent)
        wb_forget_published(session);
    r = take_away(keeper, prune, hurry);
    wb_prune_free(prune);
    if (r == 0)
        wb_timeline_shorten(session->store);
    if (r == 0 && !spent)
        keeper->beyond = MAX(keeper->beyond, beyond);
    return r;
}

void wb_keeper_report_failure(struct wb_keeper *keeper, int r)
{
    /* Not reported: a snapshot was just created, the daemon ends, or a process writes to a log all the time. */
    bool fails = r < 0 && r != -ECANCELED && r != -EEXIST && r != -EAGAIN;

    if (r == -EBADMSG && !keeper->failing)
        wb_log_msg("%s: a log of the store is damaged, so some expired history is kept; run vfsck",
                   keeper->session->source);
    else if (fails && !keeper->failing)
        wb_log_msg("%s: some expired history could not be deleted: %s; trying again", keeper->session->source,
                   g_strerror(-r));
    keeper->failing = fails;
}

int wb_keeper_forget(struct wb_keeper *keeper, int64_t horizon, int64_t beyond, bool hurry)
{
    int r = forget(keeper, horizon, beyond, hurry, NULL);

    /* If there is no room to write the remainder of a log to a new file, a later horizon makes that smaller. */
    wb_keeper_report_failure(keeper, hurry && (r == -ENOSPC || r == -EDQUOT) ? 0 : r);
    /* A damaged log is not read again, because it remains damaged. */
    keeper->unfinished = r == -EAGAIN || r == -ENOSPC || r == -EDQUOT || r == -ECANCELED;
    return r == -ECANCELED || r == -EEXIST ? r : 0;
}

int wb_keeper_forget_of(struct wb_keeper *keeper, int64_t beyond, struct wb_spent *spent)
{
    int r;

    keeper->for_user = true;
    r = forget(keeper, keeper->session->store->header.created, beyond, true, spent);
    keeper->for_user = false;
    /* Lists and states that are being returned may contain deleted history. */
    wb_forget_published(keeper->session);
    wb_keeper_report_failure(keeper, r == -ENOSPC || r == -EDQUOT ? 0 : r);
    return r == -ECANCELED || r == -EEXIST ? r : 0;
}

/* ---- the plan -------------------------------------------------------------------------------- */

void wb_keeper_plan(struct wb_keeper *keeper, const struct wb_snapshots *all, struct wb_keeper_state *state,
                    struct wb_keeper_plan *plan)
{
    struct wb_store *store = keeper->session->store;
    int64_t pleaded;

    *state = (struct wb_keeper_state){.now = wb_keeper_now(keeper), .begins = store->header.created};
    state->newest = wb_store_now(store);
    state->full = keeper->full;
    state->beyond = keeper->beyond;
    state->pinned = all->count > 0 ? all->list[0].when : 0;
    for (size_t i = 0; i < all->count && state->whole == 0; i++)
        state->whole = wb_object_equal(all->list[i].scope, store->header.root) ? all->list[i].when : 0;
    pleaded = wb_keeper_pinned(keeper->session);
    if (pleaded > 0 && (state->pinned == 0 || pleaded < state->pinned))
        state->pinned = pleaded;
    if (pleaded > 0 && (state->whole == 0 || pleaded < state->whole))
        state->whole = pleaded;
    wb_keeper_decide(wb_keeper_policy(keeper), state, plan);
}

/* The oldest snapshot of a user, if it is older than `before`: later history may not be deleted in any case. */
static const struct wb_snapshot *oldest_of_users(const struct wb_snapshots *all, int64_t before)
{
    for (size_t i = 0; i < all->count && all->list[i].when < before; i++)
        if (!wb_snapshot_is_keepers(&all->list[i]))
            return &all->list[i];
    return NULL;
}

int wb_keeper_take_snapshot(struct wb_keeper *keeper, const char *why)
{
    struct wb_snapshots *all __attribute__((cleanup(wb_snapshots_unrefp))) = NULL;
    struct wb_store *store = keeper->session->store;
    int64_t age = wb_policy_shortest_hold(wb_keeper_policy(keeper)), now = wb_keeper_now(keeper);
    const struct wb_snapshot *snapshot;
    char text[WB_WHEN_TEXT_MAX];
    int r = wb_snapshots_get(store, &all);

    if (r < 0 || age >= now - 1)
        return MIN(r, 0);
    snapshot = oldest_of_users(all, now - 1 - age);
    if (!snapshot || !why)
        return snapshot != NULL;
    r = wb_snapshots_delete(store, snapshot->when);
    if (r < 0)
        return r;
    if (r == 0)
        wb_log_msg("%s%s%s: deleting the snapshot %s of user %u, of %s, and history that it protects (low space: %s)",
                   keeper->session->source, *snapshot->path ? "/" : "", snapshot->path, snapshot->name, snapshot->uid,
                   wb_when_print(snapshot->when, 0, text), why);
    return 1;
}
