/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * The files that a directory lost: what they take, and that they are packed, unpacked, or left as they are.
 */
#include "maintain/bundle/bundle_parts.h"

#include "base/cleanup.h"
#include "maintain/rewrite/tried.h"
#include <errno.h>

/* ---- unpacking ------------------------------------------------------------------------------- */

static int unpack(struct wb_bundle_work *work)
{
    g_autoptr(GHashTable) done = wb_bundle_objects_new();
    struct wb_store *store = work->gather->store;
    int r = 0;

    for (guint i = 0; r == 0 && i < work->gather->rows->len; i++) {
        for (guint j = 0; r == 0 && j < wb_bundle_row_at(work, i)->bodies->len; j++) {
            struct wb_object object = wb_bundle_body_at(wb_bundle_row_at(work, i), j)->member.object;

            if (wb_bundle_body_at(wb_bundle_row_at(work, i), j)->bundle == 0)
                continue;
            if (atomic_load(&store->rewrite_wanted) > 0 ||
                (work->compact->stop && work->compact->stop(work->compact->stop_data)))
                r = -ECANCELED;
            else if (!(work->compact->flags & WB_COMPACT_DRY))
                r = wb_bundle_unpack(store, object);
            if (r < 0)
                break;
            work->compact->bodies.changed++;
            work->compact->bodies.packed--;
            g_hash_table_add(done, g_memdup2(&object, sizeof(object)));
        }
    }
    if (g_hash_table_size(done) > 0 && !(work->compact->flags & WB_COMPACT_DRY)) {
        int old = wb_bundle_forget_old(store, done);

        r = r < 0 ? r : old;
    }
    return r;
}

/* ---- all of a directory ----------------------------------------------------------------------- */

/* What they take now, and would. A bundle counts where it is met first. */
static int count(struct wb_bundle_work *work)
{
    g_autoptr(GHashTable) met = g_hash_table_new_full(g_int64_hash, g_int64_equal, g_free, NULL);
    struct wb_compact *compact = work->compact;
    bool packs = !(compact->flags & (WB_COMPACT_UNDO | WB_COMPACT_STATS));

    for (guint i = 0; i < work->gather->rows->len; i++) {
        const struct wb_bundle_row *row = wb_bundle_row_at(work, i);

        for (guint j = 0; j < row->bodies->len; j++) {
            const struct wb_bundle_body *body = wb_bundle_body_at(row, j);
            struct wb_bundle *bundle = NULL;
            uint64_t size = body->member.size, length = size;
            guint64 ino = body->bundle;
            struct stat st;

            if (ino != 0 && wb_bundle_open(work->gather->store, body->member.object, WB_FILE_BUNDLE, &bundle) == 0) {
                const struct wb_bundle_member *member = wb_bundle_find(bundle, body->member.object);

                length = member ? member->size : 0;
                size = g_hash_table_add(met, g_memdup2(&ino, sizeof(ino))) && fstat(bundle->fd, &st) == 0
                           ? (uint64_t)st.st_size
                           : 0;
                wb_bundle_free(bundle);
            }
            compact->bodies.files++;
            compact->bodies.packed += ino != 0;
            compact->bodies.length += length;
            compact->bodies.old_size += size;
            /* What is packed now says itself what it takes then. */
            if (!packs || row->fresh == 0)
                compact->bodies.new_size += compact->flags & WB_COMPACT_UNDO ? length : body->shared ? 0 : size;
        }
    }
    return 0;
}

/* What did not get smaller once is not tried again and again by itself: a row has its turn when something is new; and
 * of some nothing is to be done. */
static void pass_over(struct wb_bundle_work *work)
{
    for (guint i = 0; i < work->gather->rows->len; i++) {
        struct wb_bundle_row *row = wb_bundle_row_at(work, i);
        bool is_new = false;

        for (guint j = 0; !is_new && j < row->bodies->len; j++)
            is_new = wb_bundle_body_at(row, j)->bundle == 0 &&
                     !wb_tried_has(work->compact->tried, wb_bundle_body_at(row, j)->member.object, WB_FILE_DATA, 0);
        if (!is_new || wb_bundle_mode_of(work, row) == WB_MODE_NONE)
            row->fresh = 0;
    }
}

/* What is there, and all that is done with the right to write logs anew, once. */
static int begin(struct wb_bundle_work *work)
{
    struct wb_store *store = work->gather->store;
    unsigned flags = work->compact->flags;
    int r;

    work->turn = atomic_load(&store->rewrites);
    r = wb_bundle_gather(work->gather);
    if (r == 0 && !(flags & (WB_COMPACT_STATS | WB_COMPACT_DRY | WB_COMPACT_UNDO)) &&
        g_hash_table_size(work->gather->old) > 0)
        r = wb_bundle_forget_old(store, work->gather->old);
    if (r == 0 && flags & WB_COMPACT_UNDO) {
        r = count(work);
        if (r < 0)
            return r;
        atomic_fetch_add(&store->rewrites, 1);
        work->turn++;
        r = unpack(work);
    }
    return r;
}

/* `r`: what it came to. Where somebody wants to have the store, or that it ends, nobody waits for two syncs more. */
static int finish(struct wb_bundle_batch *batch, int r)
{
    int committed = 0;

    if (r == -ECANCELED)
        wb_bundle_batch_drop(batch);
    else
        committed = wb_bundle_batch_commit(batch);
    wb_bundle_batch_free(batch);
    return r < 0 ? r : committed;
}

int wb_compact_bodies(struct wb_store *store, struct wb_compact *compact, struct wb_object dir, const char *name)
{
    struct wb_bundle_gather gather = {.store = store,
                                      .dir = dir,
                                      .before = compact->before,
                                      .only = name,
                                      .in_use = compact->in_use,
                                      .in_use_data = compact->in_use_data,
                                      .taken = compact->batch ? wb_bundle_batch_taken(compact->batch) : NULL};
    struct wb_bundle_work work = {.compact = compact, .gather = &gather, .batch = compact->batch};
    int r, left = 0;

    r = wb_compact_own(store, compact);
    if (r < 0)
        return r;
    r = begin(&work);
    pthread_mutex_unlock(&store->rewriting);
    if (r == 0 && compact->flags & WB_COMPACT_IDLE)
        pass_over(&work);
    if (r == 0 && !(compact->flags & (WB_COMPACT_UNDO | WB_COMPACT_STATS | WB_COMPACT_DRY)))
        r = wb_bundle_share(&(struct wb_bundle_share){&gather, wb_bundle_is_wanted, &work});
    if (r == 0 && !(compact->flags & WB_COMPACT_UNDO))
        r = count(&work);
    if (r == 0 && !(compact->flags & (WB_COMPACT_UNDO | WB_COMPACT_STATS | WB_COMPACT_DRY)))
        left = wb_bundle_finish(&work);
    if (r == 0 && left != -EBADMSG)
        r = left;
    if (r == 0 && !(compact->flags & (WB_COMPACT_UNDO | WB_COMPACT_STATS))) {
        if (!work.batch)
            work.batch = wb_bundle_batch_new(store, compact);
        r = wb_bundle_pack(&work);
        if (!compact->batch) {
            r = finish(work.batch, r);
        }
    }
    wb_bundle_gather_deinit(&gather);
    r = r == 0 ? left : r;
    return r == -EBADMSG ? -EIO : r;
}

int wb_compact_finish(struct wb_compact *compact, int r)
{
    r = finish(compact->batch, r);
    compact->batch = NULL;
    return r == -EBADMSG ? -EIO : r;
}

void wb_compact_begin(struct wb_compact *compact, struct wb_store *store)
{
    compact->batch = wb_bundle_batch_new(store, compact);
}
