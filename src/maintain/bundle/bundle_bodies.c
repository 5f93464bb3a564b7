/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * The files that a directory lost: computes their sizes, and packs them, unpacks them, or leaves them as they are.
 */
#include "maintain/bundle/bundle_parts.h"

#include "base/checksum.h"
#include "base/cleanup.h"
#include "base/io.h"
#include "maintain/bundle/bundle.h"
#include "maintain/rewrite/tried.h"
#include "store/inflight/lost_content.h"
#include "store/inflight/spans.h"
#include "store/object/catalog_path.h"
#include "store/object/object_log.h"
#include "wayback/when.h"
#include <errno.h>
#include <fcntl.h>
#include <linux/fiemap.h>
#include <linux/fs.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/xattr.h>
#include <unistd.h>

/*
 * Files that have a bundle and are not empty: the process that packed or unpacked them was killed before it finished.
 * The bundle has their content; it is flushed to the disk, with its names, and compared, and then the files are
 * emptied. A file that is no prefix of the content in the bundle is left as it is, and is reported: the cause is
 * unknown.
 */

#define STEP (1u << 19)

/* ---- the same -------------------------------------------------------------------------------- */

static int compare_content(struct wb_bundle_work *work, const struct wb_bundle *bundle,
                           const struct wb_bundle_member *member, int fd, uint64_t size)
{
    g_autofree uint8_t *a = g_try_malloc(STEP), *b = g_try_malloc(STEP);
    size_t got = 0;
    int r = a && b ? 0 : -ENOMEM;

    for (uint64_t offset = 0, step; r == 0 && offset < size; offset += step) {
        step = MIN(size - offset, (uint64_t)STEP);
        r = wb_bundle_is_wanted(work) ? -ECANCELED : wb_pread_full(fd, a, step, offset, &got);
        if (r == 0)
            r = wb_bundle_read(bundle, member, b, step, offset);
        if (r == 0 && (got != step || memcmp(a, b, step) != 0))
            r = -EBADMSG;
    }
    return r;
}

/* Whether its bundle is on the disk, and has what the file has: 0, -EBADMSG, WB_ABSENT: one of them is gone; or
 * -errno. */
static int compare(struct wb_bundle_work *work, const struct wb_bundle_body *body)
{
    struct wb_object object = body->member.object;
    _cleanup_close_ int fd = wb_grave_open(work->gather->store, object, false, O_RDONLY);
    const struct wb_bundle_member *member;
    struct wb_bundle *bundle;
    int r;

    if (fd < 0)
        return fd == -ENOENT || fd == -EACCES || fd == -EPERM ? WB_ABSENT : fd;
    r = wb_bundle_open(work->gather->store, object, WB_FILE_BUNDLE, &bundle);
    if (r != 0)
        return r;
    member = wb_bundle_find(bundle, object);
    if (!member || member->size < body->member.size)
        r = -EBADMSG;
    else
        r = fsync(bundle->fd) < 0 ? -errno : compare_content(work, bundle, member, fd, body->member.size);
    wb_bundle_free(bundle);
    return r;
}

/* ---- emptied --------------------------------------------------------------------------------- */

/* Unless somebody forgot something since, or brought it back: 1, 0 or -errno. */
static int empty(struct wb_bundle_work *work, const struct wb_bundle_body *body)
{
    const struct wb_compact *compact = work->compact;
    struct wb_store *store = work->gather->store;
    struct stat st;
    int r = 0;

    pthread_mutex_lock(&store->rewriting);
    if (atomic_load(&store->rewrites) == work->turn &&
        !(compact->in_use && compact->in_use(compact->in_use_data, body->member.object)) &&
        wb_bundle_stat(store, body->member.object, WB_FILE_BUNDLE, &st) == 0 && st.st_ino == body->bundle)
        r = wb_bundle_empty(store, body);
    pthread_mutex_unlock(&store->rewriting);
    return r;
}

static int finish_one(struct wb_bundle_work *work, const struct wb_bundle_body *body)
{
    int r = wb_bundle_is_wanted(work) ? -ECANCELED : compare(work, body);

    if (r == -EBADMSG)
        wb_tried_note(work->compact->tried, body->member.object, WB_FILE_DATA, 0);
    if (r != 0)
        return MIN(r, 0);
    r = empty(work, body);
    work->compact->bodies.changed += r > 0;
    work->compact->bodies.old_size += r > 0 ? body->member.size : 0;
    return MIN(r, 0);
}

/* Whether the file is still to be compared with its bundle. A difference is reported once. */
static bool is_left(const struct wb_bundle_work *work, const struct wb_bundle_body *body)
{
    return body->bundle != 0 && body->member.size > 0 &&
           !wb_tried_has(work->compact->tried, body->member.object, WB_FILE_DATA, 0);
}

/* Empties the bodies that a bundle has, and that are whole all the same. 0; -EBADMSG: some differ from the bundle, and
 * stay; or -errno. */
static int wb_bundle_finish(struct wb_bundle_work *work)
{
    bool synced = false;
    int ret = 0;

    for (guint i = 0; i < work->gather->chains->len; i++) {
        const struct wb_bundle_chain *chain = wb_bundle_chain_at(work, i);

        for (guint j = 0; j < chain->bodies->len; j++) {
            int r = 0;

            if (!is_left(work, wb_bundle_body_at(chain, j)))
                continue;
            /* Their names of it. */
            if (!synced && syncfs(work->gather->store->dir_fd) < 0)
                r = -errno;
            synced = true;
            if (r == 0)
                r = finish_one(work, wb_bundle_body_at(chain, j));
            if (r < 0 && r != -EBADMSG)
                return r;
            ret = r < 0 ? r : ret;
        }
    }
    return ret;
}

/*
 * Which files a directory lost, by its catalog: a row for each name, in the order they were lost in. Left out is what
 * has another name or is in use, since it may change; and what would not be the same when it is written again, because
 * writing takes away the right to run as somebody else.
 */

/* So many that are not packed at a time; the others have their turn when it is done again. And so many in all. */
#define FRESH_MAX 16384u
#define BODIES_MAX 65536u

struct work {
    struct wb_bundle_gather *gather;
    GHashTable *by_name; /* of wb_bundle_chain */
    GHashTable *seen;    /* objects */
    unsigned fresh, bodies;
};

static void chain_free(void *data)
{
    struct wb_bundle_chain *chain = data;

    g_array_unref(chain->bodies);
    g_free(chain->name);
    g_free(chain);
}

static uint64_t row_id(struct wb_object dir, const char *name)
{
    uint64_t parts[3] = {dir.ino, (uint64_t)dir.birth, wb_checksum(name, strlen(name))};

    return wb_checksum(parts, sizeof(parts));
}

static struct wb_bundle_chain *row_of(struct work *work, const char *name)
{
    struct wb_bundle_chain *chain = g_hash_table_lookup(work->by_name, name);

    if (chain)
        return chain;
    chain = g_new0(struct wb_bundle_chain, 1);
    chain->name = g_strdup(name);
    chain->id = row_id(work->gather->dir, name);
    chain->bodies = g_array_new(FALSE, FALSE, sizeof(struct wb_bundle_body));
    g_ptr_array_add(work->gather->chains, chain);
    g_hash_table_insert(work->by_name, chain->name, chain);
    return chain;
}

static int64_t in_ns(struct timespec time)
{
    return time.tv_sec * WB_WHEN_SECOND + time.tv_nsec;
}

/* Writing takes these away, and so does cutting off; or we may not write. */
static bool has_privileges(const struct wb_store *store, const char *path, const struct stat *st)
{
    _cleanup_close_ int fd = -1;

    if (st->st_mode & (S_ISUID | S_ISGID))
        return true;
    fd = openat(store->grave_fd, path, O_RDWR | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
    /* In doubt it has. */
    return fd < 0 || fgetxattr(fd, "security.capability", NULL, 0) >= 0 || (errno != ENODATA && errno != EOPNOTSUPP);
}

/*
 * Whether a power cut may have taken content of the file, and no GAP says so yet. To pack the rest of it would hide
 * that: a bundle counts as all of the content (store/inflight/lost_content.h). The survey of a mount writes the GAP.
 * 1, 0 or -errno.
 */
static int may_have_lost_content(const struct wb_store *store, struct wb_object object, const char *path)
{
    _cleanup_close_ int fd = -1, log_fd = -1;
    int64_t since;

    if (store->lost_until == 0)
        return 0;
    fd = openat(store->grave_fd, path, O_PATH | O_NOFOLLOW | O_CLOEXEC);
    if (fd < 0)
        return errno == ENOENT ? 1 : -errno;
    log_fd = wb_store_open_file(store, object, WB_FILE_UNDO, O_RDONLY | O_CLOEXEC);
    if (log_fd < 0 && log_fd != -ENOENT)
        return log_fd;
    return wb_lost_content_find(store, fd, log_fd, &since);
}

/* 1: it counts, 0: not, or -errno. */
static int look_at(struct work *work, struct wb_object object, struct wb_bundle_body *body)
{
    struct wb_bundle_gather *gather = work->gather;
    struct wb_store *store = gather->store;
    char path[WB_OBJECT_PATH_MAX];
    struct wb_object found;
    struct stat st, bundle;
    int r;

    wb_object_path(object, WB_FILE_DATA, path);
    if (wb_object_stat(store, store->grave_fd, path, &found, NULL, &st) < 0 || !wb_object_equal(found, object) ||
        !S_ISREG(st.st_mode) || st.st_nlink != 1)
        return 0;
    *body = (struct wb_bundle_body){.mtime = st.st_mtim, .ctime = st.st_ctim, .taken = (uint64_t)st.st_blocks * 512};
    body->member = (struct wb_bundle_member){.object = object,
                                             .size = (uint64_t)st.st_size,
                                             .atime = in_ns(st.st_atim),
                                             .mtime = in_ns(st.st_mtim),
                                             .lost = in_ns(st.st_ctim)};
    r = wb_bundle_stat(store, object, WB_FILE_BUNDLE, &bundle);
    if (r == 0)
        body->bundle = bundle.st_ino;
    if (r <= 0)
        return r < 0 ? r : work->bodies < BODIES_MAX;
    if (st.st_size == 0 || (gather->in_use && gather->in_use(gather->in_use_data, object)) ||
        has_privileges(store, path, &st))
        return 0;
    r = may_have_lost_content(store, object, path);
    if (r != 0)
        return MIN(r, 0);
    r = wb_bundle_stat(store, object, WB_FILE_BUNDLE_OLD, &bundle);
    if (r == 0)
        g_hash_table_add(gather->old, g_memdup2(&object, sizeof(object)));
    return r < 0 ? r : 1;
}

static int take_slot(struct work *work, const struct wb_slot *slot)
{
    char name[WB_NAME_MAX + 1];
    struct wb_bundle_body body;
    struct wb_bundle_chain *chain;
    int r;

    if (!slot->present || slot->unbind != WB_UNBIND_KEPT || !S_ISREG(slot->attrs.mode) ||
        g_hash_table_contains(work->seen, &slot->object))
        return 0;
    if (work->gather->taken && g_hash_table_contains(work->gather->taken, &slot->object))
        return 0;
    memcpy(name, slot->name, slot->name_length);
    name[slot->name_length] = '\0';
    if (work->gather->only && strcmp(name, work->gather->only) != 0)
        return 0;
    r = look_at(work, slot->object, &body);
    if (r <= 0)
        return r;
    chain = row_of(work, name);
    body.member.chain = chain->id;
    chain->fresh += body.bundle == 0;
    work->fresh += body.bundle == 0;
    work->bodies++;
    g_array_append_val(chain->bodies, body);
    g_hash_table_add(work->seen, g_memdup2(&slot->object, sizeof(slot->object)));
    return 0;
}

static int read_catalog(struct work *work)
{
    _cleanup_object_log_ struct wb_object_log log = WB_OBJECT_LOG_CLOSED;
    struct wb_record record;
    int r = wb_object_log_open(&log, work->gather->store, work->gather->dir, WB_FILE_CATALOG);

    if (r <= 0)
        return r;
    wb_log_reader_seek(&log.reader, 0);
    /* A damaged record is skipped; the others are still read. */
    while (((r = wb_log_reader_next(&log.reader, &record)) == 0 || r == WB_DAMAGED) && work->fresh < FRESH_MAX) {
        if (r == WB_DAMAGED || record.type != WB_REC_NAME)
            continue;
        if (record.when >= work->gather->before)
            break;
        for (uint32_t i = 0, error = 0; i < record.name.count && !error; i++) {
            r = take_slot(work, &record.name.slots[i]);
            error = r < 0;
        }
        if (r < 0)
            break;
    }
    return r < 0 ? r : 0;
}

static gint compare_chains(gconstpointer a, gconstpointer b)
{
    const struct wb_bundle_chain *const *x = a, *const *y = b;

    return strcmp((*x)->name, (*y)->name);
}

int wb_bundle_gather(struct wb_bundle_gather *gather)
{
    struct work work = {.gather = gather};
    int r;

    gather->chains = g_ptr_array_new_with_free_func(chain_free);
    gather->old = wb_bundle_objects_new();
    if (gather->store->grave_fd < 0)
        return 0;
    work.by_name = g_hash_table_new(g_str_hash, g_str_equal);
    work.seen = wb_bundle_objects_new();
    r = read_catalog(&work);
    g_ptr_array_sort(gather->chains, compare_chains);
    g_hash_table_unref(work.by_name);
    g_hash_table_unref(work.seen);
    return r;
}

static void bundle_gather_deinit(struct wb_bundle_gather *gather)
{
    g_clear_pointer(&gather->chains, g_ptr_array_unref);
    g_clear_pointer(&gather->old, g_hash_table_unref);
}

/* ---- unpacking ------------------------------------------------------------------------------- */

static int unpack(struct wb_bundle_work *work)
{
    g_autoptr(GHashTable) done = wb_bundle_objects_new();
    struct wb_store *store = work->gather->store;
    int r = 0;

    for (guint i = 0; r == 0 && i < work->gather->chains->len; i++) {
        for (guint j = 0; r == 0 && j < wb_bundle_chain_at(work, i)->bodies->len; j++) {
            struct wb_object object = wb_bundle_body_at(wb_bundle_chain_at(work, i), j)->member.object;

            if (wb_bundle_body_at(wb_bundle_chain_at(work, i), j)->bundle == 0)
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

/* Counts their present size, and the size after packing. A bundle counts once, with the first file that has it. */
static int count(struct wb_bundle_work *work)
{
    g_autoptr(GHashTable) met = g_hash_table_new_full(g_int64_hash, g_int64_equal, g_free, NULL);
    struct wb_compact *compact = work->compact;
    bool packs = !(compact->flags & (WB_COMPACT_UNDO | WB_COMPACT_STATS));

    for (guint i = 0; i < work->gather->chains->len; i++) {
        const struct wb_bundle_chain *chain = wb_bundle_chain_at(work, i);

        for (guint j = 0; j < chain->bodies->len; j++) {
            const struct wb_bundle_body *body = wb_bundle_body_at(chain, j);
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
            if (!packs || chain->fresh == 0)
                compact->bodies.new_size += compact->flags & WB_COMPACT_UNDO ? length : body->shared ? 0 : size;
        }
    }
    return 0;
}

/* What did not get smaller once is not tried again and again by itself: a row has its turn when something is new; and
 * of some nothing is to be done. */
static void pass_over(struct wb_bundle_work *work)
{
    for (guint i = 0; i < work->gather->chains->len; i++) {
        struct wb_bundle_chain *chain = wb_bundle_chain_at(work, i);
        bool is_new = false;

        for (guint j = 0; !is_new && j < chain->bodies->len; j++)
            is_new = wb_bundle_body_at(chain, j)->bundle == 0 &&
                     !wb_tried_has(work->compact->tried, wb_bundle_body_at(chain, j)->member.object, WB_FILE_DATA, 0);
        if (!is_new || wb_bundle_mode_of(work, chain) == WB_MODE_NONE)
            chain->fresh = 0;
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

/* `r`: the result so far. If another thread waits for the store, or stop was requested, drops the batch: no syncs. */
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
        r = wb_bundle_share(&(struct wb_bundle_share){&gather, wb_bundle_is_wanted, &work, compact->dir_fd,
                                                       compact->places});
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
    bundle_gather_deinit(&gather);
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

/*
 * A file that was replaced by one with the same content, as many programs save it and many tools copy it: where the
 * file system can share extents, it takes no room of its own then. The kernel compares before it shares, with both
 * files locked for as long; that is short, since both were just read here.
 */

/* Smaller ones are packed. */
#define WORTH (64u << 10)
#define SHARE_STEP (256u << 10)
#define EXTENTS 16u

/* ---- whether they are one already ------------------------------------------------------------- */

struct map {
    struct fiemap head;
    struct fiemap_extent extents[EXTENTS];
};

static bool get_map(int fd, struct map *map)
{
    memset(map, 0, sizeof(*map));
    map->head.fm_length = FIEMAP_MAX_OFFSET;
    map->head.fm_extent_count = EXTENTS;
    return ioctl(fd, FS_IOC_FIEMAP, map) == 0 && map->head.fm_mapped_extents > 0;
}

/* Whether both share their extents, judging by the first ones only. */
static bool are_one(int a_fd, int b_fd)
{
    struct map a, b;

    if (!get_map(a_fd, &a) || !get_map(b_fd, &b) || a.head.fm_mapped_extents != b.head.fm_mapped_extents)
        return false;
    for (unsigned i = 0; i < a.head.fm_mapped_extents; i++)
        if (!(a.extents[i].fe_flags & FIEMAP_EXTENT_SHARED) || a.extents[i].fe_physical != b.extents[i].fe_physical ||
            a.extents[i].fe_logical != b.extents[i].fe_logical)
            return false;
    return true;
}

/* ---- sharing ----------------------------------------------------------------------------------- */


/* More than 0: so many bytes; 0: they differ; or -errno. */
static int64_t share_step(int from, int to, uint64_t offset, size_t length, uint8_t *a, uint8_t *b)
{
    uint64_t data[(sizeof(struct file_dedupe_range) + sizeof(struct file_dedupe_range_info)) / 8] = {0};
    struct file_dedupe_range *range = (void *)data;
    int r = wb_pread_exact(from, a, length, offset);

    if (r == 0)
        r = wb_pread_exact(to, b, length, offset);
    if (r < 0)
        return r;
    if (memcmp(a, b, length) != 0)
        return 0;
    range->src_offset = offset;
    range->src_length = length;
    range->dest_count = 1;
    range->info[0].dest_fd = to;
    range->info[0].dest_offset = offset;
    if (ioctl(from, FIDEDUPERANGE, range) < 0)
        return -errno;
    if (range->info[0].status < 0)
        return range->info[0].status;
    return range->info[0].status == FILE_DEDUPE_RANGE_SAME ? (int64_t)range->info[0].bytes_deduped : 0;
}

static int share_all(const struct wb_bundle_share *share, int from, int to, uint64_t size)
{
    g_autofree uint8_t *a = g_try_malloc(SHARE_STEP), *b = g_try_malloc(SHARE_STEP);
    uint64_t offset = 0;

    if (!a || !b)
        return -ENOMEM;
    while (offset < size) {
        int64_t step;

        if (share->stop(share->stop_data))
            return -ECANCELED;
        step = share_step(from, to, offset, (size_t)MIN(size - offset, (uint64_t)SHARE_STEP), a, b);
        if (step <= 0)
            return (int)step;
        offset += (uint64_t)step;
    }
    return 1;
}

/* 1: the body is one with the present; 0: it is not. */
static int share_body(const struct wb_bundle_share *share, int present, const struct stat *st,
                      const struct wb_bundle_body *body)
{
    WB_IN_SPAN(share->gather->store);
    _cleanup_close_ int fd = -1;
    struct wb_object found;
    struct stat is;

    if (body->bundle != 0 || body->member.size != (uint64_t)st->st_size || body->taken == 0)
        return 0;
    fd = wb_grave_open(share->gather->store, body->member.object, false, O_RDWR);
    if (fd < 0 || wb_object_stat(share->gather->store, fd, NULL, &found, NULL, &is) < 0 ||
        !wb_object_equal(found, body->member.object) || is.st_size != st->st_size || is.st_dev != st->st_dev)
        return 0;
    return are_one(present, fd) ? 1 : share_all(share, present, fd, body->member.size);
}

/* Opens the file that has the row's name now; below 0: there is none to share with. */
static int open_present(int dir_fd, const char *name, struct stat *st)
{
    int fd = openat(dir_fd, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);

    if (fd >= 0 && (fstat(fd, st) < 0 || !S_ISREG(st->st_mode) || st->st_size < (off_t)WORTH))
        wb_close_fd(&fd);
    return fd;
}

static bool has_fresh(const struct wb_bundle_gather *gather)
{
    for (guint i = 0; i < gather->chains->len; i++)
        if (((const struct wb_bundle_chain *)gather->chains->pdata[i])->fresh > 0)
            return true;
    return false;
}

int wb_bundle_share(const struct wb_bundle_share *share)
{
    _cleanup_close_ int own_fd = -1;
    int dir_fd = share->dir_fd ? *share->dir_fd : -1, r = 0;

    if (!has_fresh(share->gather))
        return 0;
    if (dir_fd < 0) {
        if (wb_catalog_path_find(share->gather->store, share->places, share->gather->dir, &own_fd, NULL) != 0)
            return 0;
        dir_fd = own_fd;
    }
    for (guint i = 0; r >= 0 && i < share->gather->chains->len; i++) {
        struct wb_bundle_chain *chain = share->gather->chains->pdata[i];
        _cleanup_close_ int present = -1;
        struct stat st;

        if (chain->fresh > 0)
            present = open_present(dir_fd, chain->name, &st);
        for (guint j = 0; r >= 0 && present >= 0 && j < chain->bodies->len; j++) {
            struct wb_bundle_body *body = &g_array_index(chain->bodies, struct wb_bundle_body, j);

            r = share_body(share, present, &st, body);
            body->shared = r > 0;
            chain->fresh -= body->shared;
        }
    }
    /* A file system that cannot. */
    return r == -ECANCELED ? r : 0;
}
