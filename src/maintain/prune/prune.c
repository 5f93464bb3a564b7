/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "maintain/prune/prune_parts.h"

#include "store/tables/snapshots.h"
#include "wayback/when.h"
#include <errno.h>

/* Erasures by name, and fast writers, have precedence, but not forever: so many attempts. */
#define ATTEMPTS 20

/* ---- the horizon ----------------------------------------------------------------------------- */

/*
 * How many snapshots of keepers, or of the whole tree, are of an earlier moment, or -errno. *ret_users: the oldest
 * other one, which holds no more than its directory; 0: there is none.
 */
static int64_t earlier_snapshots(struct wb_store *store, int64_t before, int64_t *ret_users, struct wb_error *why)
{
    struct wb_snapshots *all __attribute__((cleanup(wb_snapshots_unrefp))) = NULL;
    char text[WB_WHEN_TEXT_MAX];
    int64_t count = 0;
    int r = wb_snapshots_get(store, &all);

    *ret_users = 0;
    if (r < 0)
        return wb_error_set(why, r, "cannot read the snapshots: %s", g_strerror(-r));
    for (size_t i = 0; i < all->count && all->list[i].when < before; i++) {
        const struct wb_snapshot *snapshot = &all->list[i];

        if (wb_snapshot_is_keepers(snapshot) || wb_object_equal(snapshot->scope, store->header.root)) {
            if (count++ == 0)
                wb_error_set(why, -EEXIST, "%s of %s", snapshot->name, wb_when_print(snapshot->when, 0, text));
        } else if (*ret_users == 0) {
            *ret_users = snapshot->when;
        }
    }
    return count;
}

/* With all changes kept away. */
static int hide(struct wb_prune *prune, uint64_t *ret_snapshots, struct wb_error *why)
{
    int64_t users, count = earlier_snapshots(prune->store, prune->options.before, &users, why);
    int64_t pinned = prune->options.pinned ? prune->options.pinned(prune->options.data) : 0;

    *ret_snapshots = count > 0 ? (uint64_t)count : 0;
    if (count == 0 && pinned > 0 && pinned < prune->options.before)
        return wb_error_set(why, -EEXIST, "a process still needs an older state");
    if (count != 0)
        return count < 0 ? (int)count : -EEXIST;
    /* What users hold of their directories stays; all others are forgotten up to the same moment. */
    if (users > 0) {
        prune->options.beyond = MAX(prune->options.beyond, prune->options.before);
        prune->options.before = MAX(users, wb_store_horizon(prune->store));
        if (prune->options.before <= prune->store->header.created && wb_store_horizon(prune->store) == 0)
            prune->options.before = 0;
    }
    if (pinned > 0 && pinned < prune->options.beyond)
        prune->options.beyond = 0;
    if (!prune->options.dry_run && prune->options.before > 0)
        wb_store_hide_before(prune->store, prune->options.before);
    return 0;
}

static int publish(struct wb_prune *prune, uint64_t *ret_snapshots, struct wb_error *why)
{
    int r;

    pthread_mutex_lock(&prune->store->forgetting);
    /* No change is under way that began with an older state, and no snapshot is being made. */
    prune->options.own(prune->options.data);
    r = hide(prune, ret_snapshots, why);
    prune->options.release(prune->options.data);
    if (r == 0 && !prune->options.dry_run && prune->options.before > 0) {
        r = wb_store_forget_hidden(prune->store);
        if (r < 0)
            wb_error_set(why, r, "cannot write the header of the store: %s", g_strerror(-r));
    }
    pthread_mutex_unlock(&prune->store->forgetting);
    return r;
}

int wb_prune_begin(struct wb_prune **ret, struct wb_store *store, const struct wb_prune_options *options,
                   uint64_t *ret_snapshots, struct wb_error *why)
{
    struct wb_prune *prune;
    int r;

    *ret_snapshots = 0;
    if (!store->writable)
        return wb_error_set(why, -EROFS, "the history is read-only here");
    if (options->before <= 0 || options->before >= wb_store_now(store))
        return wb_error_set(why, -EINVAL, "not a time in the past");
    prune = g_try_new0(struct wb_prune, 1);
    if (!prune)
        return wb_error_set(why, -ENOMEM, "no memory");
    prune->store = store;
    prune->options = *options;
    /* What was forgotten already stays so; there may be something left of it. */
    prune->options.before = MAX(options->before, wb_store_horizon(store));
    /* Before the history there was nothing that could be forgotten. */
    if (prune->options.before <= store->header.created && wb_store_horizon(store) == 0)
        prune->options.before = 0;
    if (!options->dry_run)
        wb_store_note_forgotten(store, MAX(prune->options.before, options->beyond));
    prune->bundles = wb_bundle_objects_new();
    prune->bodies = g_array_new(FALSE, FALSE, sizeof(struct wb_prune_body));
    prune->held = g_array_new(FALSE, FALSE, sizeof(int));
    r = publish(prune, ret_snapshots, why);
    if (r < 0) {
        wb_prune_free(prune);
        return r;
    }
    *ret = prune;
    return 0;
}

struct wb_prune *wb_prune_free(struct wb_prune *prune)
{
    if (prune) {
        wb_prune_limits_free(prune->limits);
        g_array_unref(prune->bodies);
        g_array_unref(prune->held);
        g_hash_table_unref(prune->bundles);
    }
    g_free(prune);
    return NULL;
}

/* ---- beyond the horizon ---------------------------------------------------------------------- */

/* Whether a path or a snapshot may protect anything: where the own limit of each object says it, nothing else need. */
static bool has_limits(const struct wb_prune *prune)
{
    struct wb_snapshots *all __attribute__((cleanup(wb_snapshots_unrefp))) = NULL;

    return !prune->options.own_limit || prune->options.limit || wb_snapshots_get(prune->store, &all) < 0 ||
           all->count > 0;
}

/* Where it is not known what is protected, everything is. 0 or -ECANCELED. */
static int find_limits(struct wb_prune *prune)
{
    int r = prune->options.beyond > prune->options.before && has_limits(prune)
                ? wb_prune_limits_make(&prune->limits, prune->store, &prune->options)
                : 0;

    if (r < 0 && r != -ECANCELED) {
        prune->options.beyond = 0;
        prune->count->kept++;
        prune->count->error = r;
        r = 0;
    }
    return r;
}

/* ---- the rest -------------------------------------------------------------------------------- */

static int prune_log(struct wb_prune *prune, const struct wb_compact_found *found)
{
    int r = -EAGAIN;

    for (int i = 0; i < ATTEMPTS && (r == -EAGAIN || r == -ECANCELED); i++) {
        if (prune->options.stop(prune->options.data))
            return -ECANCELED;
        r = wb_prune_log(prune, found->object, found->file);
    }
    if (r == 0)
        return 0;
    prune->count->kept++;
    prune->count->error = r;
    return 0;
}

/* An undo log from which nothing is pruned. A catalog is read in any case, since it may mention deleted things. */
static bool is_spared(const struct wb_prune *prune, const struct wb_compact_found *found)
{
    const struct wb_prune_options *options = &prune->options;

    return options->own_limit && found->file == WB_FILE_UNDO &&
           wb_prune_limits_before(prune->limits, options, found->object) <= options->before;
}

static int prune_folder(struct wb_prune *prune, unsigned shard)
{
    g_autoptr(GArray) list = g_array_new(FALSE, FALSE, sizeof(struct wb_compact_found));
    int r = wb_compact_gather(prune->store, shard, INT64_MIN, WB_WHEN_PRESENT, list);

    for (guint i = 0; r >= 0 && i < list->len; i++) {
        const struct wb_compact_found *found = &g_array_index(list, struct wb_compact_found, i);

        if (!is_spared(prune, found))
            r = prune_log(prune, found);
    }
    if (r < 0)
        prune->blind = true;
    return r;
}

int wb_prune_step(struct wb_prune *prune, unsigned step, struct wb_prune_count *count)
{
    prune->count = count;
    if (step < WB_SHARDS)
        return wb_prune_find_bodies(prune, step);
    if (step == WB_SHARDS) {
        int r = find_limits(prune);

        if (r < 0)
            return r;
        wb_prune_sort_bodies(prune);
    }
    if (step < 2 * WB_SHARDS)
        return prune_folder(prune, step - WB_SHARDS);
    return wb_prune_remove_bodies(prune);
}
