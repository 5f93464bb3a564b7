/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Decides which files of a directory are packed together. Rows of small files share bundles; a row of large ones has
 * its own, so that one that cannot be packed does not affect the others, and deleting one does not rewrite the others.
 *
 * An existing bundle is packed again together with the new files of its rows, unless it is much larger: so
 * each version of a file is written a few times at most, however many there will be, and finds its successor.
 */
#include "maintain/bundle/bundle_parts.h"

#include "base/cleanup.h"
#include "maintain/rewrite/tried.h"
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

/* Rows [begin, end), and the bundle that is made of them. */
struct set {
    guint begin, end;
    GHashTable *included; /* objects */
    struct wb_bundle_set what;
    uint64_t fresh_bytes;
    enum wb_compact_mode mode;
};

static void fresh_of(const struct wb_bundle_chain *chain, uint64_t *ret_bytes, uint64_t *ret_largest)
{
    *ret_bytes = *ret_largest = 0;
    for (guint i = 0; i < chain->bodies->len; i++) {
        const struct wb_bundle_body *body = wb_bundle_body_at(chain, i);

        *ret_bytes += body->bundle == 0 && !body->shared ? body->member.size : 0;
        *ret_largest = MAX(*ret_largest, body->member.size);
    }
}

bool wb_bundle_is_wanted(void *data)
{
    struct wb_bundle_work *work = data;

    if (work->compact->give_way)
        work->compact->give_way(work->compact->give_way_data);
    return atomic_load(&work->gather->store->rewrites) != work->turn ||
           atomic_load(&work->gather->store->rewrite_wanted) > 0 ||
           (work->compact->stop && work->compact->stop(work->compact->stop_data));
}

/* ---- a set ----------------------------------------------------------------------------------- */

/* From set->begin on: rows with something new, of one mode. */
static void choose(struct wb_bundle_work *work, struct set *set)
{
    guint chains = work->gather->chains->len;
    uint64_t bytes, largest;
    guint files = 0;

    while (set->begin < chains && wb_bundle_chain_at(work, set->begin)->fresh == 0)
        set->begin++;
    set->end = set->begin;
    set->fresh_bytes = 0;
    if (set->begin == chains)
        return;
    set->mode = wb_bundle_mode_of(work, wb_bundle_chain_at(work, set->begin));
    for (; set->end < chains; set->end++) {
        struct wb_bundle_chain *chain = wb_bundle_chain_at(work, set->end);

        if (chain->fresh == 0)
            continue;
        fresh_of(chain, &bytes, &largest);
        if (set->end > set->begin && (largest > LARGE || set->fresh_bytes + bytes > SET_BYTES ||
                                      files + chain->fresh > SET_FILES || wb_bundle_mode_of(work, chain) != set->mode))
            break;
        set->fresh_bytes += bytes;
        files += chain->fresh;
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
static int include_needed(struct wb_bundle_work *work, struct set *set, const struct wb_bundle *bundle, ino_t ino)
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
static int include_bundle(struct wb_bundle_work *work, struct set *set, const struct wb_bundle_body *body)
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
    guint chain;
    struct wb_bundle_member member;
};

static gint compare_places(gconstpointer a, gconstpointer b)
{
    const struct place *x = a, *y = b;

    if (x->chain != y->chain)
        return x->chain < y->chain ? -1 : 1;
    if (x->member.chain != y->member.chain)
        return x->member.chain < y->member.chain ? -1 : 1;
    return x->member.lost > y->member.lost ? -1 : x->member.lost < y->member.lost;
}

/* By name, and the newest of each first. */
static void sort(const struct wb_bundle_work *work, struct set *set)
{
    g_autoptr(GHashTable) order = g_hash_table_new(g_int64_hash, g_int64_equal);
    g_autoptr(GArray) places = g_array_new(FALSE, FALSE, sizeof(struct place));

    for (guint i = set->begin; i < set->end; i++)
        g_hash_table_insert(order, &wb_bundle_chain_at(work, i)->id, GUINT_TO_POINTER(i));
    for (guint i = 0; i < set->what.members->len; i++) {
        struct place place = {.chain = set->end,
                              .member = g_array_index(set->what.members, struct wb_bundle_member, i)};
        void *chain;

        if (g_hash_table_lookup_extended(order, &place.member.chain, NULL, &chain))
            place.chain = GPOINTER_TO_UINT(chain);
        g_array_append_val(places, place);
    }
    g_array_sort(places, compare_places);
    g_array_set_size(set->what.members, 0);
    for (guint i = 0; i < places->len; i++)
        g_array_append_val(set->what.members, g_array_index(places, struct place, i).member);
}

static int fill(struct wb_bundle_work *work, struct set *set)
{
    int r = 0;

    wb_bundle_set_deinit(&set->what);
    wb_bundle_set_init(&set->what);
    set->what.turn = work->turn;
    g_hash_table_remove_all(set->included);
    for (guint i = set->begin; i < set->end; i++) {
        struct wb_bundle_chain *chain = wb_bundle_chain_at(work, i);

        for (guint j = 0; chain->fresh > 0 && j < chain->bodies->len; j++) {
            const struct wb_bundle_body *body = wb_bundle_body_at(chain, j);

            if (body->bundle != 0 || body->shared)
                continue;
            include(set, &body->member);
            g_array_append_val(set->what.fresh, *body);
            set->what.old_size += body->member.size;
        }
    }
    for (guint i = set->begin; r == 0 && i < set->end; i++) {
        const struct wb_bundle_chain *chain = wb_bundle_chain_at(work, i);

        for (guint j = 0; r == 0 && chain->fresh > 0 && j < chain->bodies->len; j++)
            if (wb_bundle_body_at(chain, j)->bundle != 0)
                r = include_bundle(work, set, wb_bundle_body_at(chain, j));
    }
    sort(work, set);
    return r;
}

/* ---- packing --------------------------------------------------------------------------------- */

/* They did not get smaller. */
static void note_tried(struct wb_bundle_work *work, const struct set *set)
{
    for (guint i = set->begin; i < set->end; i++) {
        const struct wb_bundle_chain *chain = wb_bundle_chain_at(work, i);

        for (guint j = 0; chain->fresh > 0 && j < chain->bodies->len; j++)
            if (wb_bundle_body_at(chain, j)->bundle == 0)
                wb_tried_note(work->compact->tried, wb_bundle_body_at(chain, j)->member.object, WB_FILE_DATA, 0);
    }
}

static int pack_set(struct wb_bundle_work *work, struct set *set)
{
    struct wb_bundle_job job = {.store = work->gather->store,
                                .plain = set->mode == WB_MODE_DELTA,
                                .alone = set->mode == WB_MODE_ZSTD,
                                .may_be_waste = true,
                                .stop = wb_bundle_is_wanted,
                                .stop_data = work};
    uint64_t most, size;
    int r = fill(work, set);

    if (r < 0)
        return r;
    size = set->what.old_size;
    most = MIN(size - size / 10, size - MIN(size, SAVES_AT_LEAST));
    if (set->mode == WB_MODE_NONE || most == 0 || !wb_compact_has_room(job.store, work->compact, size)) {
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

int wb_bundle_pack(struct wb_bundle_work *work)
{
    struct set set = {.included = wb_bundle_objects_new()};
    int r = 0;

    wb_bundle_set_init(&set.what);
    for (; r == 0; set.begin = set.end) {
        choose(work, &set);
        if (set.begin == set.end)
            break;
        r = wb_bundle_is_wanted(work) ? -ECANCELED : pack_set(work, &set);
        if (r == 0 && wb_bundle_batch_is_full(work->batch))
            r = wb_bundle_batch_commit(work->batch);
    }
    wb_bundle_set_deinit(&set.what);
    g_hash_table_unref(set.included);
    return r;
}
