/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "maintain/prune/prune_parts.h"

#include "base/cleanup.h"
#include "format/object_key.h"
#include "store/tables/manifest.h"
#include "wayback/when.h"
#include <errno.h>
#include <fcntl.h>
#include <time.h>

/*
 * Deleted files and directories that are in no state of the horizon or later. One may be removed if
 *
 *  - it was deleted before the horizon, according to its ctime, which changes when a name is added or removed;
 *  - no remaining record mentions it, in catalogs all of which were read after it was found;
 *  - it did not change since it was found, so that nothing was done to it while these were read;
 *  - a file has no other name, and no process has it open.
 *
 * Of a packed file, a crash may have left the name of its bundle alone. That is removed if no remaining record mentions
 * the file.
 */

/* So many at a time; the others have their turn when it is done again. */
#define BODIES_MAX 500000u
/* Of so many blocks of 512 bytes; and so many at a time, of which each may have two files more. */
#define LARGE 2048
#define HELD_MAX 16u

/* The latest moment before which anything is forgotten. */
static int64_t prune_latest(const struct wb_prune *prune)
{
    return MAX(prune->options.before, prune->options.beyond);
}

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

static void add_body(struct wb_prune *prune, const struct wb_prune_body *body)
{
    if (prune->bodies->len < BODIES_MAX)
        g_array_append_vals(prune->bodies, body, 1);
    else
        prune->more_bodies = true;
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
    add_body(prune, &body);
    return 0;
}

static int look_at_bundle(void *data, int dir_fd, const char *name)
{
    struct wb_prune *prune = data;
    struct wb_prune_body body = {.only_bundle = true};
    enum wb_object_file file;

    if (wb_object_file_parse(name, &body.object, &file) < 0 || file != WB_FILE_BUNDLE ||
        wb_grave_has(prune->store, body.object, false) != 0 ||
        (prune->options.own_limit && prune->options.own_limit(prune->options.own_data, body.object) == 0))
        return 0;
    add_body(prune, &body);
    return 0;
}

int wb_prune_find_bodies(struct wb_prune *prune, unsigned shard)
{
    int r = prune->store->grave_fd < 0 ? 0 : wb_shard_each(prune->store->grave_fd, shard, look_at, prune);

    if (r == 0 && prune->store->grave_fd >= 0)
        r = wb_shard_each(prune->store->dir_fd, shard, look_at_bundle, prune);
    return r;
}

void wb_prune_sort_bodies(struct wb_prune *prune)
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

/* As remove_body, and its content goes from a bundle that others need, too. */
static int remove_only_bundle(struct wb_prune *prune, const struct wb_prune_body *body)
{
    int r = wb_grave_has(prune->store, body->object, false);

    if (r != 0 || prune->options.dry_run)
        return MIN(r, 0);
    note_bundle(prune, body->object);
    return wb_bundle_drop(prune->store, body->object);
}

/* With the tree owned, and nobody writing logs anew. The body goes last: by it the rest is found again. */
static int remove_body(struct wb_prune *prune, struct wb_prune_body *body)
{
    enum wb_object_file file = body->is_dir ? WB_FILE_DIR : WB_FILE_DATA;
    char path[WB_OBJECT_PATH_MAX];
    struct stat st;
    int r;

    if (body->only_bundle)
        return remove_only_bundle(prune, body);
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
