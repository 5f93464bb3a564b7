/* SPDX-License-Identifier: LGPL-2.1-or-later */
#define XXH_STATIC_LINKING_ONLY
#include "maintain/prune/prune_parts.h"

#include "base/cleanup.h"
#include "format/object_key.h"
#include "store/tables/manifest.h"
#include "store/tables/snapshots.h"
#include "wayback/when.h"
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <xxhash.h>

/*
 * Deleted files and directories that are in no state of the horizon or later. One may be removed if
 *
 *  - it was deleted before the horizon, according to its ctime, which changes when a name is added or removed;
 *  - no remaining record mentions it, in catalogs all of which were read after it was found;
 *  - it did not change since it was found, so that nothing was done to it while these were read;
 *  - a file has no other name, and no process has it open.
 */

/* So many at a time; the others have their turn when it is done again. */
#define BODIES_MAX 500000u
/* Of so many blocks of 512 bytes; and so many at a time, of which each may have two files more. */
#define LARGE 2048
#define HELD_MAX 16u

static int64_t prune_latest(const struct wb_prune *prune);

static int compare(const void *a, const void *b)
{
    const struct wb_prune_body *x = a, *y = b;

    return wb_object_compare(x->object, y->object);
}

/* Emptying a file changed its ctime: its bundle records the previous one. */
static bool is_lost_before(const struct wb_prune *prune, struct wb_object object, const struct stat *st)
{
    const struct wb_bundle_member *member;
    struct wb_bundle *bundle;
    bool before;

    if (!S_ISREG(st->st_mode) || st->st_size > 0 ||
        wb_bundle_open(prune->store, object, WB_FILE_BUNDLE, &bundle) != 0)
        return false;
    member = wb_bundle_find(bundle, object);
    before = member && member->lost < prune_latest(prune);
    wb_bundle_free(bundle);
    return before;
}

/* Whether its own inode and bundle allow its removal. */
static bool is_old(const struct wb_prune *prune, struct wb_prune_body *body, const struct stat *st)
{
    int64_t changed = st->st_ctim.tv_sec * WB_WHEN_SECOND + st->st_ctim.tv_nsec;

    if (!S_ISDIR(st->st_mode) && st->st_nlink != 1)
        return false;
    if (prune->options.own_limit && prune->options.own_limit(prune->options.own_data, body->object) == 0)
        return false;
    return changed < prune_latest(prune) || body->lost_before ||
           (body->lost_before = is_lost_before(prune, body->object, st));
}

static int look_at(void *data, int dir_fd, const char *name)
{
    struct wb_prune *prune = data;
    struct wb_prune_body body = {0};
    enum wb_object_file file;
    struct stat st;

    if (wb_object_file_parse(name, &body.object, &file) < 0 || (file != WB_FILE_DATA && file != WB_FILE_DIR) ||
        fstatat(dir_fd, name, &st, AT_SYMLINK_NOFOLLOW) < 0 || S_ISDIR(st.st_mode) != (file == WB_FILE_DIR) ||
        !is_old(prune, &body, &st))
        return 0;
    body.ctime = st.st_ctim;
    body.is_dir = file == WB_FILE_DIR;
    if (prune->bodies->len < BODIES_MAX)
        g_array_append_val(prune->bodies, body);
    else
        prune->more_bodies = true;
    return 0;
}

/* Adds those of a folder, 0 to 255. */
static int prune_find_bodies(struct wb_prune *prune, unsigned shard)
{
    return prune->store->grave_fd < 0 ? 0 : wb_shard_each(prune->store->grave_fd, shard, look_at, prune);
}

static void prune_sort_bodies(struct wb_prune *prune)
{
    g_array_sort(prune->bodies, compare);
}

void wb_prune_need(struct wb_prune *prune, struct wb_object object)
{
    struct wb_prune_body key = {.object = object};
    guint index;

    if (g_array_binary_search(prune->bodies, &key, compare, &index))
        g_array_index(prune->bodies, struct wb_prune_body, index).needed = true;
}

/* ---- taking away ----------------------------------------------------------------------------- */

/* To free the blocks of something large takes time: that is put off to when its descriptor is closed. */
static void hold(struct wb_prune *prune, int dir_fd, const char *path, const struct stat *st)
{
    int fd = st->st_blocks < LARGE || prune->options.dry_run
                 ? -1
                 : openat(dir_fd, path, O_PATH | O_NOFOLLOW | O_CLOEXEC);

    if (fd >= 0)
        g_array_append_val(prune->held, fd);
}

static void let_go(struct wb_prune *prune)
{
    for (guint i = 0; i < prune->held->len; i++)
        close(g_array_index(prune->held, int, i));
    g_array_set_size(prune->held, 0);
}

static int remove_log(struct wb_prune *prune, struct wb_object object, enum wb_object_file file)
{
    char path[WB_OBJECT_PATH_MAX];
    struct stat st;
    int r;

    wb_object_path(object, file, path);
    if (fstatat(prune->store->dir_fd, path, &st, AT_SYMLINK_NOFOLLOW) < 0)
        return errno == ENOENT ? 0 : -errno;
    hold(prune, prune->store->dir_fd, path, &st);
    if (!prune->options.dry_run && file != WB_FILE_IMAGE) {
        r = wb_store_drop_log(prune->store, object, file);
        if (r < 0)
            return r;
        /* What the records in it took was counted when they went. */
        prune->count->log_bytes += (uint64_t)st.st_size;
    }
    if (!prune->options.dry_run && unlinkat(prune->store->dir_fd, path, 0) < 0)
        return -errno;
    if (file == WB_FILE_IMAGE)
        prune->count->image_bytes += (uint64_t)st.st_blocks * 512;
    return 0;
}

/* Those that share a bundle with it: one that needs it is found among them afterwards. */
static void note_bundle(struct wb_prune *prune, struct wb_object object)
{
    struct wb_bundle *bundle;

    if (wb_bundle_open(prune->store, object, WB_FILE_BUNDLE, &bundle) != 0 &&
        wb_bundle_open(prune->store, object, WB_FILE_BUNDLE_OLD, &bundle) != 0)
        return;
    for (uint32_t i = 0; i < bundle->count; i++)
        g_hash_table_add(prune->bundles, g_memdup2(&bundle->members[i].object, sizeof(struct wb_object)));
    wb_bundle_free(bundle);
}

/* With the tree owned, and nobody writing logs anew. The body goes last: by it the rest is found again. */
static int remove_body(struct wb_prune *prune, struct wb_prune_body *body)
{
    enum wb_object_file file = body->is_dir ? WB_FILE_DIR : WB_FILE_DATA;
    char path[WB_OBJECT_PATH_MAX];
    struct stat st;
    int r;

    wb_object_path(body->object, file, path);
    if (fstatat(prune->store->grave_fd, path, &st, AT_SYMLINK_NOFOLLOW) < 0)
        return errno == ENOENT ? 0 : -errno;
    if (!is_old(prune, body, &st) || st.st_ctim.tv_sec != body->ctime.tv_sec ||
        st.st_ctim.tv_nsec != body->ctime.tv_nsec || S_ISDIR(st.st_mode) != body->is_dir ||
        prune->options.in_use(prune->options.data, body->object))
        return 0;
    r = remove_log(prune, body->object, body->is_dir ? WB_FILE_CATALOG : WB_FILE_UNDO);
    if (r == 0 && !body->is_dir)
        r = remove_log(prune, body->object, WB_FILE_IMAGE);
    if (r == 0)
        hold(prune, prune->store->grave_fd, path, &st);
    if (r == 0 && !prune->options.dry_run && !body->is_dir)
        note_bundle(prune, body->object);
    if (r == 0 && !prune->options.dry_run && !body->is_dir)
        r = wb_manifest_withdraw_body(prune->store, body->object, false);
    if (r == 0 && !prune->options.dry_run &&
        unlinkat(prune->store->grave_fd, path, body->is_dir ? AT_REMOVEDIR : 0) < 0)
        r = -errno;
    if (r == 0 && !prune->options.dry_run && !body->is_dir)
        r = wb_bundle_drop(prune->store, body->object);
    if (r == 0) {
        prune->count->bodies++;
        prune->count->body_bytes += (uint64_t)st.st_blocks * 512;
    }
    return r;
}

/* Owns the tree and the right to write logs anew; never waits for the one with the other. */
static void own(struct wb_prune *prune)
{
    static const struct timespec pause = {.tv_nsec = 1000 * 1000};

    atomic_fetch_add(&prune->store->rewrite_wanted, 1);
    for (;;) {
        prune->options.own(prune->options.data);
        if (pthread_mutex_trylock(&prune->store->rewriting) == 0)
            break;
        prune->options.release(prune->options.data);
        nanosleep(&pause, NULL);
    }
    atomic_fetch_sub(&prune->store->rewrite_wanted, 1);
    atomic_fetch_add(&prune->store->rewrites, 1);
}

static void release(struct wb_prune *prune)
{
    pthread_mutex_unlock(&prune->store->rewriting);
    prune->options.release(prune->options.data);
}

/* Some, as long as changes may wait. */
static guint remove_some(struct wb_prune *prune, guint index)
{
    gint64 until;

    own(prune);
    until = g_get_monotonic_time() + 2000;
    do {
        struct wb_prune_body *body = &g_array_index(prune->bodies, struct wb_prune_body, index++);
        int r = body->needed ? 0 : remove_body(prune, body);

        if (r < 0) {
            prune->count->kept++;
            prune->count->error = r;
        }
    } while (index < prune->bodies->len && prune->held->len < HELD_MAX && g_get_monotonic_time() < until);
    release(prune);
    let_go(prune);
    return index;
}

static int refresh_bundles(struct wb_prune *prune)
{
    int r;

    wb_rewriting_own(prune->store);
    r = wb_bundle_refresh(prune->store, prune->bundles, prune->options.stop, prune->options.data);
    pthread_mutex_unlock(&prune->store->rewriting);
    return r;
}

/* Bundles that others need: written anew without what is gone. Changes go on meanwhile, and so does who owns the tree
 * and waits for the right to write anew. */
static int remove_from_bundles(struct wb_prune *prune)
{
    int r;

    if (g_hash_table_size(prune->bundles) == 0)
        return 0;
    do
        r = refresh_bundles(prune);
    while (r == -ECANCELED && !prune->options.stop(prune->options.data));
    g_hash_table_remove_all(prune->bundles);
    return r;
}

int wb_prune_remove_bodies(struct wb_prune *prune)
{
    int r;

    for (guint i = 0; !prune->blind && i < prune->bodies->len;) {
        if (g_array_index(prune->bodies, struct wb_prune_body, i).needed) {
            i++;
            continue;
        }
        if (prune->options.stop(prune->options.data))
            return -ECANCELED;
        i = remove_some(prune, i);
    }
    if (prune->more_bodies) {
        prune->count->kept++;
        prune->count->error = -EAGAIN;
    }
    r = remove_from_bundles(prune);
    if (r < 0) {
        prune->count->kept++;
        prune->count->error = r;
    }
    wb_log_chunks_forget();
    return 0;
}

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

/* The latest moment before which anything is forgotten, and that before which the object's logs are. */
static int64_t prune_latest(const struct wb_prune *prune)
{
    return MAX(prune->options.before, prune->options.beyond);
}

int64_t wb_prune_before(const struct wb_prune *prune, struct wb_object object)
{
    const struct wb_prune_options *options = &prune->options;
    int64_t limit = prune->limits ? wb_prune_limits_get(prune->limits, object) : options->before;

    if (options->own_limit && options->beyond > options->before)
        limit = MIN(prune->limits ? limit : options->beyond, options->own_limit(options->own_data, object));
    return MAX(options->before, limit);
}

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
           wb_prune_before(prune, found->object) <= options->before;
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
        return prune_find_bodies(prune, step);
    if (step == WB_SHARDS) {
        int r = find_limits(prune);

        if (r < 0)
            return r;
        prune_sort_bodies(prune);
    }
    if (step < 2 * WB_SHARDS)
        return prune_folder(prune, step - WB_SHARDS);
    return wb_prune_remove_bodies(prune);
}

/*
 * Fillers: records of the very length of those that are forgotten. They are made where bytes of a log are asked for, so
 * that a run of any length takes no memory.
 */

/* For a checksum over more than is in memory at once. */

/* All of a run but its end is made of fillers of this length. */
#define PIECE ((uint64_t)1 << 20)
#define PIECE_MAX WB_PRUNE_FILLER_MAX

_Static_assert(PIECE_MAX - PIECE >= WB_FILLER_SIZE, "what is left of a run is long enough for a filler");

static uint64_t check_of_zeros(uint32_t length)
{
    static const uint8_t zeros[4096];
    XXH3_state_t state;

    if (length == 0)
        return 0;
    XXH3_64bits_reset(&state);
    for (uint32_t n; length > 0; length -= n) {
        n = MIN(length, (uint32_t)sizeof(zeros));
        XXH3_64bits_update(&state, zeros, n);
    }
    return XXH3_64bits_digest(&state);
}

/* Copies what of [at, at + length) lies in [offset, offset + room). */
static void put(uint8_t *bytes, size_t room, uint64_t offset, const uint8_t *data, size_t length, uint64_t at)
{
    uint64_t from = MAX(at, offset), to = MIN(at + length, offset + room);

    if (from >= to)
        return;
    if (data)
        memcpy(bytes + (from - offset), data + (from - at), to - from);
    else
        memset(bytes + (from - offset), 0, to - from);
}

void wb_prune_encode_filler(const struct wb_prune_run *run, uint64_t from, uint64_t to, bool more,
                            uint8_t head[WB_PRUNE_FILLER_HEAD], uint8_t end[WB_TRAILER_SIZE])
{
    struct wb_record record = {
        .type = WB_REC_FILLER,
        .flags = more ? WB_RECORD_MORE : 0,
        .op = WB_OP_FORGET,
        .when = run->when,
        .payload_length = (uint32_t)(to - from) - WB_FILLER_SIZE,
        .filler.until = run->until,
    };
    uint8_t data[WB_HEAD_SIZE + WB_BODY_MAX], tail[16];

    record.payload_check = check_of_zeros(record.payload_length);
    wb_record_encode(&record, data);
    memcpy(head, data, WB_PRUNE_FILLER_HEAD);
    /* Its length is a multiple of 8, so nothing is between the payload and the trailer. */
    wb_record_encode_end(&record, tail);
    memcpy(end, tail, WB_TRAILER_SIZE);
}

/* One filler, [from, to); the last of its run, or one before it. */
static void fill_piece(const struct wb_prune_run *run, uint64_t from, uint64_t to, bool last, uint8_t *bytes,
                       size_t length, uint64_t offset)
{
    uint8_t head[WB_PRUNE_FILLER_HEAD], end[WB_TRAILER_SIZE];

    wb_prune_encode_filler(run, from, to, !last, head, end);
    put(bytes, length, offset, NULL, to - from, from);
    put(bytes, length, offset, head, sizeof(head), from);
    put(bytes, length, offset, end, sizeof(end), to - sizeof(end));
}

void wb_prune_fill(const GArray *runs, uint8_t *bytes, size_t length, uint64_t offset)
{
    for (guint i = 0; i < runs->len; i++) {
        const struct wb_prune_run *run = &g_array_index(runs, struct wb_prune_run, i);
        uint64_t from = run->from, to, last;

        if (run->to <= offset || run->from >= offset + length)
            continue;
        /* Those before the first that is asked for are passed over. */
        last = run->to - from <= PIECE_MAX ? 0 : (run->to - from - PIECE_MAX + PIECE - 1) / PIECE;
        if (offset > from)
            from += MIN((offset - from) / PIECE, last) * PIECE;
        for (; from < run->to && from < offset + length; from = to) {
            to = run->to - from <= PIECE_MAX ? run->to : from + PIECE;
            fill_piece(run, from, to, to == run->to, bytes, length, offset);
        }
    }
}
