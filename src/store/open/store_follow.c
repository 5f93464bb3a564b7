/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "store/open/store_follow.h"

#include "base/io.h"
#include "store/cache/preclone.h"
#include "store/cache/gaps.h"
#include "store/identity/identities.h"
#include "store/inflight/inflight_parts.h"
#include "store/inflight/spans.h"
#include "store/timeline/timeline.h"
#include <errno.h>
#include <glib.h>

int wb_store_rest(struct wb_store *store)
{
    store->preclone = wb_preclone_free(store->preclone);
    wb_gaps_flush(store);
    /* If it fails, the next pass does the work, wherever the store is then. */
    wb_timeline_pass(store);
    return wb_inflight_is_idle(store->inflight) ? 0 : -EBUSY;
}

void wb_store_wake(struct wb_store *store)
{
    if (store->can_clone && !store->preclone)
        store->preclone = wb_preclone_new();
}

static int open_parts(struct wb_store *copy, const struct wb_store *store, const char *home, struct wb_error *why)
{
    int r = wb_spans_copy(store, copy->dir_fd);

    if (r == 0)
        r = wb_inflight_write_rested(store->inflight, copy->dir_fd);
    if (r == 0)
        r = wb_identities_open(&copy->identities, copy->dir_fd);
    if (r < 0)
        return wb_error_set(why, r, "the copy of the store in %s cannot be opened: %s", home, g_strerror(-r));
    r = wb_store_open_writable(copy, home, why);
    if (r < 0)
        return r;
    wb_inflight_raise(copy->inflight, store->inflight->last);
    if (store->lets_through)
        r = wb_gaps_open(copy, true);
    if (r == 0)
        r = wb_snapshot_table_open(copy);
    if (r == 0 && !wb_inflight_is_idle(copy->inflight))
        r = -EBUSY;
    if (r < 0)
        return wb_error_set(why, r, "the copy of the store in %s cannot be opened: %s", home, g_strerror(-r));
    wb_actors_go_on(copy->actors, store->actors);
    if (store->inflight->mapping)
        wb_inflight_map(copy);
    wb_store_claim(copy);
    return 0;
}

int wb_store_open_copy(struct wb_store **ret, const struct wb_store *store, const struct wb_store_place *place,
                       const char *home, struct wb_error *why)
{
    struct wb_store *copy = wb_store_new(store->src_fd);
    int r;

    if (!copy)
        return wb_error_set(why, -ENOMEM, "no memory for the store %s", home);
    copy->dir_fd = place->dir_fd;
    copy->grave_fd = place->grave_fd;
    copy->lock_fd = place->lock_fd;
    copy->writable = true;
    copy->src_dev = store->src_dev;
    copy->layered = store->layered;
    copy->exchange_hides = store->exchange_hides;
    copy->mount_dev = store->mount_dev;
    copy->header = store->header;
    copy->horizon = store->horizon;
    copy->index_stride = store->index_stride;
    copy->lets_through = store->lets_through;
    r = open_parts(copy, store, home, why);
    if (r < 0) {
        wb_store_abandon(copy);
        return r;
    }
    *ret = copy;
    return 0;
}

#define EXCHANGE(field)                                                                            \
    do {                                                                                           \
        __typeof__(a->field) kept = a->field;                                                      \
        a->field = b->field;                                                                       \
        b->field = kept;                                                                           \
    } while (0)

void wb_store_exchange(struct wb_store *a, struct wb_store *b)
{
    EXCHANGE(dir_fd);
    EXCHANGE(grave_fd);
    EXCHANGE(lock_fd);
    EXCHANGE(settling_fd);
    EXCHANGE(mtime_untrusted);
    EXCHANGE(ordered);
    EXCHANGE(truncate_writes);
    EXCHANGE(can_clone);
    EXCHANGE(stamps);
    EXCHANGE(inflight);
    EXCHANGE(actors);
    EXCHANGE(logs);
    EXCHANGE(manifest);
    EXCHANGE(snapshots);
    EXCHANGE(timeline);
    EXCHANGE(preclone);
    EXCHANGE(stages);
    EXCHANGE(gaps);
    EXCHANGE(identities);
    /* The spans continue; if the table cannot be written now, the close of the store tries again. */
    if (wb_spans_follow(a) < 0)
        errno = 0;
    atomic_fetch_add(&a->moves, 1);
}

struct wb_store *wb_store_abandon(struct wb_store *store)
{
    if (!store)
        return NULL;
    /* A reader has nothing to finish. */
    store->writable = false;
    wb_spans_abandon(store);
    store->gaps = wb_gaps_free(store->gaps);
    return wb_store_free(store);
}
