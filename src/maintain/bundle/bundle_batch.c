/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Flushes several bundles to the disk together: all of them are written, into files without a name; synced, and
 * compared with their sources; then the files get their names of them, which are synced; then the files are
 * emptied. So two syncs suffice, for any number of directories, and a crash has the same effects as with one bundle.
 *
 * The right to write logs anew is owned while names are given, and while files are emptied, a few at a time: no other
 * thread waits for the disk or the processor. If history was deleted, or a file was restored, since the files were
 * examined, that has precedence: the new bundles are discarded before any reader could see them.
 */
#include "maintain/bundle/bundle.h"

#include "base/cleanup.h"
#include "base/io.h"
#include "store/inflight/spans.h"
#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

/* Together, after which no more are added: bytes of the files, and open files, one for each bundle and for each that it
 * replaces. */
#define BATCH_BYTES (64u << 20)
#define BATCH_OPEN 64u
/* Files that are emptied before others have a turn. */
#define EMPTY_AT_A_TIME 32u

struct part {
    struct wb_bundle_set set;
    int fd;
    ino_t ino;
    uint64_t size;
    bool named;
};

struct wb_bundle_batch {
    struct wb_store *store;
    struct wb_compact *compact;
    GPtrArray *parts; /* of struct part */
    uint64_t bytes;
    unsigned open;
    GHashTable *taken; /* objects */
};

static void free_part(void *data)
{
    struct part *part = data;

    wb_close_fd(&part->fd);
    wb_bundle_set_deinit(&part->set);
    g_free(part);
}

struct wb_bundle_batch *wb_bundle_batch_new(struct wb_store *store, struct wb_compact *compact)
{
    struct wb_bundle_batch *batch = g_new0(struct wb_bundle_batch, 1);

    batch->store = store;
    batch->compact = compact;
    batch->parts = g_ptr_array_new_with_free_func(free_part);
    batch->taken = wb_bundle_objects_new();
    return batch;
}

struct wb_bundle_batch *wb_bundle_batch_free(struct wb_bundle_batch *batch)
{
    if (batch) {
        g_ptr_array_unref(batch->parts);
        g_hash_table_unref(batch->taken);
    }
    g_free(batch);
    return NULL;
}

GHashTable *wb_bundle_batch_taken(const struct wb_bundle_batch *batch)
{
    return batch->taken;
}

bool wb_bundle_batch_is_full(const struct wb_bundle_batch *batch)
{
    return batch->bytes >= BATCH_BYTES || batch->open >= BATCH_OPEN;
}

static void free_bundle(void *data)
{
    wb_bundle_free(data);
}

void wb_bundle_set_init(struct wb_bundle_set *set)
{
    *set = (struct wb_bundle_set){.members = g_array_new(FALSE, FALSE, sizeof(struct wb_bundle_member)),
                                  .fresh = g_array_new(FALSE, FALSE, sizeof(struct wb_bundle_body)),
                                  .packed = g_array_new(FALSE, FALSE, sizeof(struct wb_bundle_body)),
                                  .replaced = g_ptr_array_new_with_free_func(free_bundle)};
}

void wb_bundle_set_deinit(struct wb_bundle_set *set)
{
    g_clear_pointer(&set->members, g_array_unref);
    g_clear_pointer(&set->fresh, g_array_unref);
    g_clear_pointer(&set->packed, g_array_unref);
    g_clear_pointer(&set->replaced, g_ptr_array_unref);
}

/* ---- what they are made of, still the same ---------------------------------------------------- */

static bool same_time(struct timespec a, struct timespec b)
{
    return a.tv_sec == b.tv_sec && a.tv_nsec == b.tv_nsec;
}

static bool is_same(const struct wb_bundle_body *body, struct wb_object found, const struct stat *st)
{
    return wb_object_equal(found, body->member.object) && S_ISREG(st->st_mode) && st->st_nlink == 1 &&
           (uint64_t)st->st_size == body->member.size && same_time(st->st_mtim, body->mtime) &&
           same_time(st->st_ctim, body->ctime);
}

/* With the right to write anew. */
static bool are_same(const struct wb_bundle_batch *batch, const struct wb_bundle_set *set)
{
    struct wb_store *store = batch->store;
    char path[WB_OBJECT_PATH_MAX];
    struct wb_object found;
    struct stat st;

    if (atomic_load(&store->rewrites) != set->turn)
        return false;
    for (guint i = 0; i < set->fresh->len; i++) {
        const struct wb_bundle_body *body = &g_array_index(set->fresh, struct wb_bundle_body, i);

        wb_object_path(body->member.object, WB_FILE_DATA, path);
        if (wb_object_stat(store, store->grave_fd, path, &found, NULL, &st) < 0 || !is_same(body, found, &st) ||
            wb_bundle_stat(store, body->member.object, WB_FILE_BUNDLE, &st) != WB_ABSENT)
            return false;
    }
    for (guint i = 0; i < set->packed->len; i++) {
        const struct wb_bundle_body *body = &g_array_index(set->packed, struct wb_bundle_body, i);

        if (wb_bundle_stat(store, body->member.object, WB_FILE_BUNDLE, &st) != 0 || st.st_ino != body->bundle)
            return false;
    }
    return true;
}

/* An operation with precedence may have removed the files that were just being read. */
static int blame(const struct wb_bundle_batch *batch, const struct wb_bundle_set *set, int r)
{
    return r < 0 && atomic_load(&batch->store->rewrites) != set->turn ? -ECANCELED : r;
}

/* ---- written ----------------------------------------------------------------------------------- */

static void give_way(const struct wb_bundle_batch *batch)
{
    if (batch->compact->give_way)
        batch->compact->give_way(batch->compact->give_way_data);
}

static bool is_over(void *data)
{
    const struct wb_bundle_batch *batch = data;

    give_way(batch);
    return batch->compact->stop && batch->compact->stop(batch->compact->stop_data);
}

static bool is_over_at_once(void *data)
{
    const struct wb_bundle_batch *batch = data;

    return atomic_load(&batch->store->rewrite_wanted) > 0 ||
           (batch->compact->flags & WB_COMPACT_IDLE && atomic_load(&batch->store->rewrite_awaited) > 0) ||
           (batch->compact->stop && batch->compact->stop(batch->compact->stop_data));
}

/* Where a file cannot be without a name, it may only be there while nobody forgets what it has: one by one. */
static int make_at_once(struct wb_bundle_batch *batch, const struct wb_bundle_job *job, struct part *part,
                        uint64_t most, bool dry)
{
    struct wb_bundle_job making = *job;
    struct stat st = {0};
    int r;

    making.stop = is_over_at_once;
    making.stop_data = batch;
    pthread_mutex_lock(&batch->store->rewriting);
    r = are_same(batch, &part->set) ? wb_bundle_make(batch->store, &making, most, dry, &part->size) : -ESTALE;
    if (r == 0 && !dry)
        r = wb_bundle_stat(batch->store, g_array_index(job->members, struct wb_bundle_member, 0).object,
                           WB_FILE_BUNDLE, &st);
    pthread_mutex_unlock(&batch->store->rewriting);
    part->ino = st.st_ino;
    part->named = true;
    return r;
}

static int write_part(struct wb_bundle_batch *batch, const struct wb_bundle_job *job, struct part *part,
                      uint64_t most, bool dry)
{
    struct wb_bundle_job writing = *job;
    struct stat st;
    int r;

    part->fd = openat(batch->store->dir_fd, ".", O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
    if (part->fd < 0 && (errno == EOPNOTSUPP || errno == EISDIR || errno == ENOENT || errno == EINVAL))
        return make_at_once(batch, job, part, most, dry);
    if (part->fd < 0 || fstat(part->fd, &st) < 0)
        return -errno;
    part->ino = st.st_ino;
    writing.to = part->fd;
    r = wb_bundle_write(&writing, &part->size);
    return r == 0 && part->size > most ? WB_BUNDLE_WASTE : r;
}

int wb_bundle_batch_add(struct wb_bundle_batch *batch, const struct wb_bundle_job *job, struct wb_bundle_set *set,
                        uint64_t most)
{
    bool dry = batch->compact->flags & WB_COMPACT_DRY;
    struct part *part = g_new0(struct part, 1);
    int r;

    part->fd = -1;
    part->set = *set;
    wb_bundle_set_init(set);
    r = blame(batch, &part->set, write_part(batch, job, part, most, dry));
    if (r != 0 || dry) {
        batch->compact->bodies.new_size += r == 0 ? part->size : part->set.old_size;
        batch->compact->bodies.changed += r == 0 ? part->set.fresh->len : 0;
        free_part(part);
        return r;
    }
    batch->bytes += part->set.old_size;
    batch->open += 1 + part->set.replaced->len;
    for (guint i = 0; i < part->set.fresh->len; i++) {
        const struct wb_bundle_body *body = &g_array_index(part->set.fresh, struct wb_bundle_body, i);

        g_hash_table_add(batch->taken, g_memdup2(&body->member.object, sizeof(struct wb_object)));
    }
    g_ptr_array_add(batch->parts, part);
    return 0;
}

/* ---- named ------------------------------------------------------------------------------------- */

/* Whether all of it was written: syncfs reports an error once per descriptor, and others sync the store's, too. */
static int check_written(const struct part *part)
{
    return sync_file_range(part->fd, 0, 0, SYNC_FILE_RANGE_WAIT_BEFORE) < 0 ? -errno : 0;
}

static int name_part(struct wb_bundle_batch *batch, struct part *part)
{
    struct wb_bundle_job job = {.store = batch->store,
                                .to = part->fd,
                                .members = part->set.members,
                                .stop = is_over,
                                .stop_data = batch};
    int r = part->named ? 0 : check_written(part);

    if (r == 0 && !part->named)
        r = wb_bundle_verify(&job);

    if (r < 0 || part->named)
        return blame(batch, &part->set, r);
    pthread_mutex_lock(&batch->store->rewriting);
    r = are_same(batch, &part->set) ? wb_bundle_give_names(batch->store, part->fd, part->set.members) : -ECANCELED;
    pthread_mutex_unlock(&batch->store->rewriting);
    part->named = r == 0;
    return r;
}

/* ---- emptied ----------------------------------------------------------------------------------- */

int wb_bundle_empty(struct wb_store *store, const struct wb_bundle_body *body)
{
    WB_IN_SPAN(store);
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
    if (!is_same(body, found, &st))
        return 0;
    times[0] = st.st_atim;
    times[1] = st.st_mtim;
    if (ftruncate(fd, 0) < 0)
        return errno == EPERM || errno == EACCES ? 0 : -errno;
    /* The times are in the bundle, too. */
    return futimens(fd, times) < 0 ? -errno : 1;
}

/* Somebody else has packed meanwhile, and met it whole, with its bundle (bundle_bodies.c). */
static bool is_empty(const struct wb_store *store, struct wb_object object)
{
    char path[WB_OBJECT_PATH_MAX];
    struct wb_object found;
    struct stat st;

    wb_object_path(object, WB_FILE_DATA, path);
    return wb_object_stat(store, store->grave_fd, path, &found, NULL, &st) == 0 && wb_object_equal(found, object) &&
           S_ISREG(st.st_mode) && st.st_size == 0;
}

/* Its content is in this bundle, durably; unless somebody brought it back meanwhile, or forgot it. */
static int empty_one(struct wb_bundle_batch *batch, const struct part *part, const struct wb_bundle_body *body)
{
    struct wb_compact *compact = batch->compact;
    struct stat st;
    bool in_use;
    int r = wb_bundle_stat(batch->store, body->member.object, WB_FILE_BUNDLE, &st);

    if (r != 0 || st.st_ino != part->ino)
        return MIN(r, 0);
    in_use = compact->in_use && compact->in_use(compact->in_use_data, body->member.object);
    r = is_empty(batch->store, body->member.object) ? 1 : in_use ? 0 : wb_bundle_empty(batch->store, body);
    if (r > 0) {
        compact->bodies.changed++;
        compact->bodies.packed++;
        return 0;
    }
    /* It is whole. */
    return r == 0 ? wb_bundle_retire(batch->store->dir_fd, body->member.object) : r;
}

static int empty_part(struct wb_bundle_batch *batch, const struct part *part)
{
    int ret = 0;

    for (guint i = 0; i < part->set.fresh->len;) {
        guint end = MIN(part->set.fresh->len, i + EMPTY_AT_A_TIME);

        give_way(batch);
        pthread_mutex_lock(&batch->store->rewriting);
        for (; i < end; i++) {
            int r = empty_one(batch, part, &g_array_index(part->set.fresh, struct wb_bundle_body, i));

            ret = r < 0 ? r : ret;
        }
        pthread_mutex_unlock(&batch->store->rewriting);
    }
    return ret;
}

/* ---- all steps --------------------------------------------------------------------------------- */

static void clear(struct wb_bundle_batch *batch)
{
    g_ptr_array_set_size(batch->parts, 0);
    batch->bytes = 0;
    batch->open = 0;
    g_hash_table_remove_all(batch->taken);
}

int wb_bundle_batch_commit(struct wb_bundle_batch *batch)
{
    struct wb_compact *compact = batch->compact;
    int ret = 0, r;

    if (batch->parts->len == 0)
        return 0;
    give_way(batch);
    r = syncfs(batch->store->dir_fd) < 0 ? -errno : 0;
    for (guint i = 0; r == 0 && i < batch->parts->len; i++) {
        int one = name_part(batch, batch->parts->pdata[i]);

        ret = one < 0 ? one : ret;
    }
    give_way(batch);
    if (r == 0 && syncfs(batch->store->dir_fd) < 0)
        r = -errno;
    for (guint i = 0; i < batch->parts->len; i++) {
        const struct part *part = batch->parts->pdata[i];

        compact->bodies.new_size += part->named ? part->size : part->set.old_size;
        if (r == 0 && part->named)
            r = empty_part(batch, part);
    }
    clear(batch);
    return r < 0 ? r : ret;
}

void wb_bundle_batch_drop(struct wb_bundle_batch *batch)
{
    for (guint i = 0; i < batch->parts->len; i++)
        batch->compact->bodies.new_size += ((const struct part *)batch->parts->pdata[i])->set.old_size;
    clear(batch);
}
