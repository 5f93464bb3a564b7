/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Which files of a directory are packed together. Rows of small files share bundles; a row of large ones has its own,
 * so that what cannot be packed keeps nobody else from it, and to forget one does not write all the others anew.
 *
 * A bundle that is there already is packed again together with what is new of its rows, unless it is much larger: so
 * each version of a file is written a few times at most, however many there will be, and finds its successor.
 */
#include "keep/bundle.h"
#include "keep/compact.h"

#include "base/cleanup.h"
#include "wayback/when.h"
#include <errno.h>
#include <fcntl.h>
#include <string.h>

/* Rows with more than this in a file are large. */
#define LARGE (1u << 19)
/* Of a bundle of small files: new bytes, and new files. */
#define SET_BYTES (16u << 20)
#define SET_FILES 512u
/* A bundle is packed again with what is at least a fourth of it. */
#define AGAIN 4
/* And so many at most become one: they are open meanwhile. */
#define REPLACED_MAX 16
/* What a bundle has to save at least: as of logs, a tenth and a block. */
#define SAVES_AT_LEAST 4096
/* So many are remembered that did not get smaller; then they have their turn again. */
#define TRIED_MAX 65536u

struct work {
    struct wb_compact *compact;
    struct wb_bundle_gather *gather;
    struct wb_bundle_batch *batch;
    unsigned turn; /* wb_store.rewrites when it was gathered */
};

/* Rows [begin, end), and the bundle that is made of them. */
struct set {
    guint begin, end;
    GHashTable *included; /* objects */
    struct wb_bundle_set what;
    uint64_t fresh_bytes;
    enum wb_compact_mode mode;
};

static bool is_wanted(void *data)
{
    struct work *work = data;

    if (work->compact->give_way)
        work->compact->give_way(work->compact->give_way_data);
    return atomic_load(&work->gather->store->rewrites) != work->turn ||
           atomic_load(&work->gather->store->rewrite_wanted) > 0 ||
           (work->compact->stop && work->compact->stop(work->compact->stop_data));
}

static struct wb_bundle_row *row_at(const struct work *work, guint i)
{
    return work->gather->rows->pdata[i];
}

static const struct wb_bundle_body *body_at(const struct wb_bundle_row *row, guint i)
{
    return &g_array_index(row->bodies, struct wb_bundle_body, i);
}

static enum wb_compact_mode mode_of(const struct work *work, const struct wb_bundle_row *row)
{
    const struct wb_compact *compact = work->compact;

    return compact->mode ? compact->mode(compact->mode_data, work->gather->dir, row->name) : WB_MODE_DELTA_ZSTD;
}

static void fresh_of(const struct wb_bundle_row *row, uint64_t *ret_bytes, uint64_t *ret_largest)
{
    *ret_bytes = *ret_largest = 0;
    for (guint i = 0; i < row->bodies->len; i++) {
        const struct wb_bundle_body *body = body_at(row, i);

        *ret_bytes += body->bundle == 0 && !body->shared ? body->member.size : 0;
        *ret_largest = MAX(*ret_largest, body->member.size);
    }
}

/* ---- a set ----------------------------------------------------------------------------------- */

/* From set->begin on: rows with something new, of one mode. */
static void choose(struct work *work, struct set *set)
{
    guint rows = work->gather->rows->len;
    uint64_t bytes, largest;
    guint files = 0;

    while (set->begin < rows && row_at(work, set->begin)->fresh == 0)
        set->begin++;
    set->end = set->begin;
    set->fresh_bytes = 0;
    if (set->begin == rows)
        return;
    set->mode = mode_of(work, row_at(work, set->begin));
    for (; set->end < rows; set->end++) {
        struct wb_bundle_row *row = row_at(work, set->end);

        if (row->fresh == 0)
            continue;
        fresh_of(row, &bytes, &largest);
        if (set->end > set->begin &&
            (largest > LARGE || set->fresh_bytes + bytes > SET_BYTES || files + row->fresh > SET_FILES ||
             mode_of(work, row) != set->mode))
            break;
        set->fresh_bytes += bytes;
        files += row->fresh;
        if (largest > LARGE) {
            set->end++;
            break;
        }
    }
}

static void include(struct set *set, const struct wb_bundle_member *member)
{
    if (g_hash_table_add(set->included, g_memdup2(&member->object, sizeof(member->object))))
        g_array_append_val(set->what.members, *member);
}

/* All of a bundle that is needed still. */
static int include_needed(struct work *work, struct set *set, const struct wb_bundle *bundle, ino_t ino)
{
    int r = 0;

    pthread_mutex_lock(&work->gather->store->rewriting);
    for (uint32_t i = 0; r >= 0 && i < bundle->count; i++) {
        struct wb_bundle_body body = {.member = bundle->members[i], .bundle = ino};

        r = wb_bundle_needs(work->gather->store, body.member.object, ino);
        if (r > 0) {
            include(set, &body.member);
            g_array_append_val(set->what.packed, body);
        }
    }
    pthread_mutex_unlock(&work->gather->store->rewriting);
    return MIN(r, 0);
}

/* A bundle that one of the set's rows is in. */
static int include_bundle(struct work *work, struct set *set, const struct wb_bundle_body *body)
{
    struct wb_bundle *bundle;
    uint64_t size = 0;
    struct stat st;
    int r;

    if (g_hash_table_contains(set->included, &body->member.object))
        return 0;
    r = wb_bundle_open(work->gather->store, body->member.object, WB_FILE_BUNDLE, &bundle);
    /* A damaged one stays as it is. */
    if (r != 0)
        return r == WB_ABSENT || r == -EBADMSG ? 0 : r;
    for (uint32_t i = 0; i < bundle->count; i++)
        size += bundle->members[i].size;
    if (size / AGAIN > set->fresh_bytes || set->what.members->len + bundle->count > 4 * SET_FILES ||
        set->what.replaced->len == REPLACED_MAX || fstat(bundle->fd, &st) < 0) {
        wb_bundle_free(bundle);
        return 0;
    }
    set->what.old_size += (uint64_t)st.st_size;
    g_ptr_array_add(set->what.replaced, bundle);
    return include_needed(work, set, bundle, st.st_ino);
}

struct place {
    guint row;
    struct wb_bundle_member member;
};

static gint compare_places(gconstpointer a, gconstpointer b)
{
    const struct place *x = a, *y = b;

    if (x->row != y->row)
        return x->row < y->row ? -1 : 1;
    if (x->member.row != y->member.row)
        return x->member.row < y->member.row ? -1 : 1;
    return x->member.lost > y->member.lost ? -1 : x->member.lost < y->member.lost;
}

/* By name, and the newest of each first. */
static void sort(const struct work *work, struct set *set)
{
    g_autoptr(GHashTable) order = g_hash_table_new(g_int64_hash, g_int64_equal);
    g_autoptr(GArray) places = g_array_new(FALSE, FALSE, sizeof(struct place));

    for (guint i = set->begin; i < set->end; i++)
        g_hash_table_insert(order, &row_at(work, i)->id, GUINT_TO_POINTER(i));
    for (guint i = 0; i < set->what.members->len; i++) {
        struct place place = {.row = set->end, .member = g_array_index(set->what.members, struct wb_bundle_member, i)};
        void *row;

        if (g_hash_table_lookup_extended(order, &place.member.row, NULL, &row))
            place.row = GPOINTER_TO_UINT(row);
        g_array_append_val(places, place);
    }
    g_array_sort(places, compare_places);
    g_array_set_size(set->what.members, 0);
    for (guint i = 0; i < places->len; i++)
        g_array_append_val(set->what.members, g_array_index(places, struct place, i).member);
}

static int fill(struct work *work, struct set *set)
{
    int r = 0;

    wb_bundle_set_deinit(&set->what);
    wb_bundle_set_init(&set->what);
    set->what.turn = work->turn;
    g_hash_table_remove_all(set->included);
    for (guint i = set->begin; i < set->end; i++) {
        struct wb_bundle_row *row = row_at(work, i);

        for (guint j = 0; row->fresh > 0 && j < row->bodies->len; j++) {
            const struct wb_bundle_body *body = body_at(row, j);

            if (body->bundle != 0 || body->shared)
                continue;
            include(set, &body->member);
            g_array_append_val(set->what.fresh, *body);
            set->what.old_size += body->member.size;
        }
    }
    for (guint i = set->begin; r == 0 && i < set->end; i++)
        for (guint j = 0; r == 0 && row_at(work, i)->fresh > 0 && j < row_at(work, i)->bodies->len; j++)
            if (body_at(row_at(work, i), j)->bundle != 0)
                r = include_bundle(work, set, body_at(row_at(work, i), j));
    sort(work, set);
    return r;
}

/* ---- packing --------------------------------------------------------------------------------- */

/* They did not get smaller. */
static void note_tried(struct work *work, const struct set *set)
{
    GHashTable *tried = work->compact->tried;

    if (!tried)
        return;
    if (g_hash_table_size(tried) > TRIED_MAX)
        g_hash_table_remove_all(tried);
    for (guint i = set->begin; i < set->end; i++) {
        const struct wb_bundle_row *row = row_at(work, i);

        for (guint j = 0; row->fresh > 0 && j < row->bodies->len; j++)
            if (body_at(row, j)->bundle == 0)
                g_hash_table_add(tried, g_memdup2(&body_at(row, j)->member.object, sizeof(struct wb_object)));
    }
}

static int pack_set(struct work *work, struct set *set)
{
    struct wb_bundle_job job = {.store = work->gather->store,
                                .plain = set->mode == WB_MODE_DELTA,
                                .alone = set->mode == WB_MODE_ZSTD,
                                .may_be_waste = true,
                                .stop = is_wanted,
                                .stop_data = work};
    uint64_t most, size;
    int r = fill(work, set);

    if (r < 0)
        return r;
    size = set->what.old_size;
    most = MIN(size - size / 10, size - MIN(size, SAVES_AT_LEAST));
    if (set->mode == WB_MODE_NONE || most == 0) {
        work->compact->bodies.new_size += size;
        return 0;
    }
    job.members = set->what.members;
    r = wb_bundle_batch_add(work->batch, &job, &set->what, most);
    if (r == WB_BUNDLE_WASTE || r == -EFBIG)
        note_tried(work, set);
    /* Somebody changed or forgot one of them: it is as before, and has its turn again. */
    return r == WB_BUNDLE_WASTE || r == -ESTALE || r == -EFBIG ? 0 : r;
}

static int pack(struct work *work)
{
    struct set set = {.included = wb_bundle_objects_new()};
    int r = 0;

    wb_bundle_set_init(&set.what);
    for (; r == 0; set.begin = set.end) {
        choose(work, &set);
        if (set.begin == set.end)
            break;
        r = is_wanted(work) ? -ECANCELED : pack_set(work, &set);
        if (r == 0 && wb_bundle_batch_is_full(work->batch))
            r = wb_bundle_batch_commit(work->batch);
    }
    wb_bundle_set_deinit(&set.what);
    g_hash_table_unref(set.included);
    return r;
}

/* ---- unpacking ------------------------------------------------------------------------------- */

static int unpack(struct work *work)
{
    g_autoptr(GHashTable) done = wb_bundle_objects_new();
    struct wb_store *store = work->gather->store;
    int r = 0;

    for (guint i = 0; r == 0 && i < work->gather->rows->len; i++) {
        for (guint j = 0; r == 0 && j < row_at(work, i)->bodies->len; j++) {
            struct wb_object object = body_at(row_at(work, i), j)->member.object;

            if (body_at(row_at(work, i), j)->bundle == 0)
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
static int count(struct work *work)
{
    g_autoptr(GHashTable) met = g_hash_table_new_full(g_int64_hash, g_int64_equal, g_free, NULL);
    struct wb_compact *compact = work->compact;
    bool packs = !(compact->flags & (WB_COMPACT_UNDO | WB_COMPACT_STATS));

    for (guint i = 0; i < work->gather->rows->len; i++) {
        const struct wb_bundle_row *row = row_at(work, i);

        for (guint j = 0; j < row->bodies->len; j++) {
            const struct wb_bundle_body *body = body_at(row, j);
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
static void pass_over(struct work *work)
{
    GHashTable *tried = work->compact->tried;

    for (guint i = 0; i < work->gather->rows->len; i++) {
        struct wb_bundle_row *row = row_at(work, i);
        bool is_new = false;

        for (guint j = 0; !is_new && j < row->bodies->len; j++)
            is_new = body_at(row, j)->bundle == 0 &&
                     !(tried && g_hash_table_contains(tried, &body_at(row, j)->member.object));
        if (!is_new || mode_of(work, row) == WB_MODE_NONE)
            row->fresh = 0;
    }
}

/* What is there, and all that is done with the right to write logs anew, once. */
static int begin(struct work *work)
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

int wb_compact_bodies(struct wb_store *store, struct wb_compact *compact, struct wb_object dir, const char *name)
{
    struct wb_bundle_gather gather = {.store = store,
                                      .dir = dir,
                                      .before = compact->before,
                                      .only = name,
                                      .in_use = compact->in_use,
                                      .in_use_data = compact->in_use_data};
    struct work work = {.compact = compact, .gather = &gather, .batch = compact->batch};
    int r;

    if (!store->writable)
        return -EROFS;
    if (compact->flags & WB_COMPACT_IDLE) {
        if (pthread_mutex_trylock(&store->rewriting) != 0)
            return -ECANCELED;
    } else {
        pthread_mutex_lock(&store->rewriting);
    }
    r = begin(&work);
    pthread_mutex_unlock(&store->rewriting);
    if (r == 0 && compact->flags & WB_COMPACT_IDLE)
        pass_over(&work);
    if (r == 0 && !(compact->flags & (WB_COMPACT_UNDO | WB_COMPACT_STATS | WB_COMPACT_DRY)))
        r = wb_bundle_share(&(struct wb_bundle_share){&gather, is_wanted, &work});
    if (r == 0 && !(compact->flags & WB_COMPACT_UNDO))
        r = count(&work);
    if (r == 0 && !(compact->flags & (WB_COMPACT_UNDO | WB_COMPACT_STATS))) {
        if (!work.batch)
            work.batch = wb_bundle_batch_new(store, compact);
        r = pack(&work);
        if (!compact->batch) {
            int committed = r == -ECANCELED ? 0 : wb_bundle_batch_commit(work.batch);

            r = r < 0 ? r : committed;
            wb_bundle_batch_free(work.batch);
        }
    }
    wb_bundle_gather_deinit(&gather);
    return r == -EBADMSG ? -EIO : r;
}

int wb_compact_finish(struct wb_compact *compact)
{
    int r = compact->batch ? wb_bundle_batch_commit(compact->batch) : 0;

    compact->batch = wb_bundle_batch_free(compact->batch);
    return r == -EBADMSG ? -EIO : r;
}

void wb_compact_begin(struct wb_compact *compact, struct wb_store *store)
{
    compact->batch = wb_bundle_batch_new(store, compact);
}
