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
#define SET_FILES 1024u
/* A bundle is packed again with what is at least a fourth of it. */
#define AGAIN 4
/* What a bundle has to save at least: as of logs, a tenth and a block. */
#define SAVES_AT_LEAST 4096

struct work {
    struct wb_compact *compact;
    struct wb_bundle_gather *gather;
};

/* Rows [begin, end), and the bundle that is made of them. */
struct set {
    guint begin, end;
    GArray *members;      /* of wb_bundle_member */
    GHashTable *included; /* objects */
    GPtrArray *fresh;     /* of wb_bundle_body */
    uint64_t fresh_bytes, old_size;
    enum wb_compact_mode mode;
};

static bool is_wanted(void *data)
{
    struct work *work = data;

    return atomic_load(&work->gather->store->rewrite_wanted) > 0 ||
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

        *ret_bytes += body->bundle == 0 ? body->member.size : 0;
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
        g_array_append_val(set->members, *member);
}

/* A bundle that one of the set's rows is in: all of it that is needed still. */
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
    if (size / AGAIN <= set->fresh_bytes && set->members->len + bundle->count <= 4 * SET_FILES &&
        fstat(bundle->fd, &st) == 0) {
        set->old_size += (uint64_t)st.st_size;
        for (uint32_t i = 0; r >= 0 && i < bundle->count; i++) {
            r = wb_bundle_needs(work->gather->store, bundle->members[i].object, st.st_ino);
            if (r > 0)
                include(set, &bundle->members[i]);
        }
        r = MIN(r, 0);
    }
    wb_bundle_free(bundle);
    return r;
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
    for (guint i = 0; i < set->members->len; i++) {
        struct place place = {.row = set->end, .member = g_array_index(set->members, struct wb_bundle_member, i)};
        void *row;

        if (g_hash_table_lookup_extended(order, &place.member.row, NULL, &row))
            place.row = GPOINTER_TO_UINT(row);
        g_array_append_val(places, place);
    }
    g_array_sort(places, compare_places);
    g_array_set_size(set->members, 0);
    for (guint i = 0; i < places->len; i++)
        g_array_append_val(set->members, g_array_index(places, struct place, i).member);
}

static int fill(struct work *work, struct set *set)
{
    int r = 0;

    set->old_size = 0;
    g_array_set_size(set->members, 0);
    g_ptr_array_set_size(set->fresh, 0);
    g_hash_table_remove_all(set->included);
    for (guint i = set->begin; i < set->end; i++) {
        struct wb_bundle_row *row = row_at(work, i);

        for (guint j = 0; row->fresh > 0 && j < row->bodies->len; j++) {
            const struct wb_bundle_body *body = body_at(row, j);

            if (body->bundle != 0)
                continue;
            include(set, &body->member);
            g_ptr_array_add(set->fresh, (void *)(uintptr_t)body);
            set->old_size += body->member.size;
        }
    }
    for (guint i = set->begin; r == 0 && i < set->end; i++)
        for (guint j = 0; r == 0 && row_at(work, i)->fresh > 0 && j < row_at(work, i)->bodies->len; j++)
            if (body_at(row_at(work, i), j)->bundle != 0)
                r = include_bundle(work, set, body_at(row_at(work, i), j));
    sort(work, set);
    return r;
}

/* ---- emptying -------------------------------------------------------------------------------- */

static bool same_time(struct timespec a, struct timespec b)
{
    return a.tv_sec == b.tv_sec && a.tv_nsec == b.tv_nsec;
}

/* 1: it is empty now; 0: it is not what it was, and stays as it is; or -errno. */
static int empty(struct wb_store *store, const struct wb_bundle_body *body)
{
    _cleanup_close_ int fd = wb_grave_open(store, body->member.object, false, O_RDWR);
    struct timespec times[2];
    struct wb_object found;
    struct stat st;
    int r;

    if (fd < 0)
        return fd == -ENOENT || fd == -EACCES || fd == -EPERM ? 0 : fd;
    r = wb_object_stat(store, fd, NULL, &found, NULL, &st);
    if (r < 0)
        return r;
    if (!wb_object_equal(found, body->member.object) || st.st_nlink != 1 ||
        (uint64_t)st.st_size != body->member.size || !same_time(st.st_mtim, body->mtime) ||
        !same_time(st.st_ctim, body->ctime))
        return 0;
    times[0] = st.st_atim;
    times[1] = st.st_mtim;
    if (ftruncate(fd, 0) < 0)
        return errno == EPERM || errno == EACCES ? 0 : -errno;
    /* The times are in the bundle, too. */
    return futimens(fd, times) < 0 ? -errno : 1;
}

/* Their content is in a bundle, durably. */
static int empty_all(struct work *work, const struct set *set)
{
    struct wb_store *store = work->gather->store;
    int ret = 0;

    for (guint i = 0; i < set->fresh->len; i++) {
        const struct wb_bundle_body *body = set->fresh->pdata[i];
        int r = empty(store, body);

        if (r > 0) {
            work->compact->bodies.changed++;
            work->compact->bodies.packed++;
            continue;
        }
        /* It is whole. */
        if (r == 0)
            r = wb_bundle_drop(store, body->member.object);
        ret = r < 0 ? r : ret;
    }
    return ret;
}

/* ---- packing --------------------------------------------------------------------------------- */

static int pack_set(struct work *work, struct set *set)
{
    struct wb_compact *compact = work->compact;
    bool dry = compact->flags & WB_COMPACT_DRY;
    struct wb_bundle_job job = {.store = work->gather->store,
                                .members = set->members,
                                .plain = set->mode == WB_MODE_DELTA,
                                .alone = set->mode == WB_MODE_ZSTD,
                                .stop = is_wanted,
                                .stop_data = work};
    uint64_t most, size;
    int r = fill(work, set);

    most = MIN(set->old_size - set->old_size / 10, set->old_size - MIN(set->old_size, SAVES_AT_LEAST));
    if (r < 0 || set->mode == WB_MODE_NONE || most == 0)
        r = r < 0 ? r : WB_BUNDLE_WASTE;
    else
        r = wb_bundle_make(work->gather->store, &job, most, dry, &size);
    if (r != 0) {
        compact->bodies.new_size += set->old_size;
        /* Somebody changed or forgot one of them: it is as before, and has its turn again. */
        return r == WB_BUNDLE_WASTE || r == -ESTALE || r == -EFBIG ? 0 : r;
    }
    compact->bodies.new_size += size;
    if (dry)
        compact->bodies.changed += set->fresh->len;
    return dry ? 0 : empty_all(work, set);
}

static int pack(struct work *work)
{
    struct set set = {.members = g_array_new(FALSE, FALSE, sizeof(struct wb_bundle_member)),
                      .included = wb_bundle_objects_new(),
                      .fresh = g_ptr_array_new()};
    int r = 0;

    for (; r == 0; set.begin = set.end) {
        choose(work, &set);
        if (set.begin == set.end)
            break;
        r = is_wanted(work) ? -ECANCELED : pack_set(work, &set);
    }
    g_array_unref(set.members);
    g_hash_table_unref(set.included);
    g_ptr_array_unref(set.fresh);
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
            if (is_wanted(work))
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
                compact->bodies.new_size += compact->flags & WB_COMPACT_UNDO ? length : size;
        }
    }
    return 0;
}

int wb_compact_bodies(struct wb_store *store, struct wb_compact *compact, struct wb_object dir, const char *name)
{
    struct wb_bundle_gather gather = {.store = store,
                                      .dir = dir,
                                      .before = compact->before,
                                      .only = name,
                                      .in_use = compact->in_use,
                                      .in_use_data = compact->in_use_data};
    struct work work = {.compact = compact, .gather = &gather};
    bool changes = !(compact->flags & (WB_COMPACT_STATS | WB_COMPACT_DRY | WB_COMPACT_UNDO));
    int r;

    if (!store->writable)
        return -EROFS;
    if (compact->flags & WB_COMPACT_IDLE) {
        if (pthread_mutex_trylock(&store->rewriting) != 0)
            return -ECANCELED;
    } else {
        pthread_mutex_lock(&store->rewriting);
    }
    r = wb_bundle_gather(&gather);
    if (r == 0 && changes && g_hash_table_size(gather.old) > 0)
        r = wb_bundle_forget_old(store, gather.old);
    if (r == 0)
        r = count(&work);
    if (r == 0 && compact->flags & WB_COMPACT_UNDO)
        r = unpack(&work);
    else if (r == 0 && !(compact->flags & WB_COMPACT_STATS))
        r = pack(&work);
    pthread_mutex_unlock(&store->rewriting);
    wb_bundle_gather_deinit(&gather);
    return r == -EBADMSG ? -EIO : r;
}
