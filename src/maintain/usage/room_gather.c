/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* What the store takes: all its files; and of those that a horizon could shorten, how old what is in them is. */
#include "maintain/usage/room.h"

#include "base/cleanup.h"
#include "base/dir.h"
#include "maintain/usage/usage.h"
#include "store/graveyard/bundle.h"
#include "store/object/object_log.h"
#include "wayback/when.h"
#include <errno.h>
#include <fcntl.h>
#include <string.h>

#define BLOCK 512
/* Of the directories in a store, `objects` and a folder among them. */
#define DEPTH 4

struct walk {
    struct wb_store *store;
    bool (*stop)(void *data);
    void *data;
    uint64_t total;
    struct wb_room_ages *ages; /* NULL: only the total */
    struct wb_room_ages *lengths; /* of a log's records, before it is known how much each of them takes */
    bool bodies;
    GHashTable *bundles; /* inode numbers of those met */
};

/* ---- one file -------------------------------------------------------------------------------- */

static void take_image(struct walk *walk, const struct wb_record *record)
{
    for (uint32_t i = 0; record->type == WB_REC_DATA && i < record->data.count; i++)
        if (record->data.extents[i].kind == WB_EXTENT_IMAGE)
            wb_room_add(walk->ages, record->when, record->data.extents[i].length);
}

/*
 * The file's blocks are distributed to the records by their lengths. Fillers have none: they are packed, or holes.
 * Unreadable parts free nothing.
 */
static int take_log(struct walk *walk, struct wb_object object, enum wb_object_file file, uint64_t disk)
{
    _cleanup_object_log_ struct wb_object_log log = WB_OBJECT_LOG_CLOSED;
    struct wb_room_ages *lengths = walk->lengths;
    struct wb_log_skip skip = {0};
    struct wb_record record;
    uint64_t sum = 0;
    int r = wb_object_log_open(&log, walk->store, object, file);

    if (r <= 0)
        return r == -ENOMEM || r == -EMFILE || r == -ENFILE ? r : 0;
    *lengths = (struct wb_room_ages){.now = walk->ages->now};
    while ((r = wb_log_reader_prev_effective(&log.reader, &skip, &record)) == 0 || r == WB_DAMAGED) {
        if (r == WB_DAMAGED || record.type == WB_REC_FILLER)
            continue;
        wb_room_add(lengths, record.when, record.total);
        sum += record.total;
        take_image(walk, &record);
    }
    for (unsigned i = 0; sum > 0 && i < WB_ROOM_CLASSES; i++)
        walk->ages->bytes[i] += (uint64_t)((double)lengths->bytes[i] * MIN((double)disk / (double)sum, 1));
    return 0;
}

/* Each member's part, by its size and when it was lost. */
static int share_out(struct walk *walk, struct wb_object object, enum wb_object_file file, uint64_t disk)
{
    struct wb_bundle *bundle;
    uint64_t sum = 0;
    int r = wb_bundle_open(walk->store, object, file, &bundle);

    if (r != 0)
        return r == -ENOMEM || r == -EMFILE || r == -ENFILE ? r : 0;
    for (uint32_t i = 0; i < bundle->count; i++)
        sum += bundle->members[i].size;
    for (uint32_t i = 0; i < bundle->count; i++)
        wb_room_add(walk->ages, bundle->members[i].lost,
                    (uint64_t)((double)disk * (double)bundle->members[i].size / (double)MAX(sum, 1)));
    wb_bundle_free(bundle);
    return 0;
}

/* It has a name for each file that is packed in it, and is met by each of them. */
static int take_bundle(struct walk *walk, struct wb_object object, enum wb_object_file file, const struct stat *st)
{
    uint64_t disk = (uint64_t)st->st_blocks * BLOCK;
    guint64 ino = st->st_ino;

    if (!g_hash_table_add(walk->bundles, g_memdup2(&ino, sizeof(ino))))
        return 0;
    walk->total += disk;
    return walk->ages ? share_out(walk, object, file, disk) : 0;
}

static int take(struct walk *walk, int dir_fd, const char *name, const struct stat *st)
{
    uint64_t disk = (uint64_t)st->st_blocks * BLOCK;
    struct wb_object object;
    enum wb_object_file file;
    bool known = wb_object_file_parse(name, &object, &file) == 0 && file != WB_FILE_GONE;
    int fd;

    if (known && (file == WB_FILE_BUNDLE || file == WB_FILE_BUNDLE_OLD))
        return take_bundle(walk, object, file, st);
    /* A deleted file that has another name still takes nothing. */
    if (!S_ISDIR(st->st_mode) && st->st_nlink > 1)
        return 0;
    walk->total += disk;
    if (!known)
        return 0;
    if (file == WB_FILE_IMAGE && walk->store->can_clone && !walk->ages) {
        fd = openat(dir_fd, name, O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
        walk->total -= fd >= 0 ? MIN(wb_usage_shared(fd), disk) : 0;
        if (fd >= 0)
            close(fd);
    }
    if (!walk->ages)
        return 0;
    if (file == WB_FILE_UNDO || file == WB_FILE_CATALOG)
        return take_log(walk, object, file, disk);
    if (walk->bodies && (file == WB_FILE_DATA || file == WB_FILE_DIR))
        wb_room_add(walk->ages, st->st_ctim.tv_sec * WB_WHEN_SECOND + st->st_ctim.tv_nsec, disk);
    return 0;
}

/* ---- all of them ----------------------------------------------------------------------------- */

static int go_through(struct walk *walk, int at, const char *name, unsigned depth)
{
    _cleanup_closedir_ DIR *stream = wb_opendir_at(at, name);
    struct dirent *entry;
    struct stat st;
    int fd, r = 0;

    if (!stream)
        return errno == ENOENT ? 0 : -errno;
    fd = dirfd(stream);
    while (wb_next_entry(stream, &entry, &r)) {
        if (walk->stop(walk->data))
            return -ECANCELED;
        if (fstatat(fd, entry->d_name, &st, AT_SYMLINK_NOFOLLOW) < 0)
            continue;
        r = take(walk, fd, entry->d_name, &st);
        if (r == 0 && S_ISDIR(st.st_mode) && depth > 0)
            r = go_through(walk, fd, entry->d_name, depth - 1);
    }
    return r;
}

static bool is_apart(const struct wb_store *store)
{
    struct stat a, b;

    return store->grave_fd >= 0 && fstat(store->grave_fd, &a) == 0 && fstat(store->dir_fd, &b) == 0 &&
           (a.st_dev != b.st_dev || a.st_ino != b.st_ino);
}

static int go_through_all(struct walk *walk)
{
    g_autoptr(GHashTable) bundles = g_hash_table_new_full(g_int64_hash, g_int64_equal, g_free, NULL);
    int r;

    walk->bundles = bundles;
    r = go_through(walk, walk->store->dir_fd, ".", DEPTH);

    if (r == 0 && is_apart(walk->store))
        r = go_through(walk, walk->store->grave_fd, ".", DEPTH);
    return r;
}

int wb_room_measure(struct wb_store *store, bool (*stop)(void *data), void *data, uint64_t *ret)
{
    struct walk walk = {.store = store, .stop = stop, .data = data};
    int r = go_through_all(&walk);

    *ret = walk.total;
    return r;
}

int wb_room_gather(struct wb_store *store, bool bodies, bool (*stop)(void *data), void *data,
                   struct wb_room_ages *ages)
{
    g_autofree struct wb_room_ages *lengths = g_try_new(struct wb_room_ages, 1);
    struct walk walk = {.store = store, .stop = stop, .data = data, .ages = ages, .lengths = lengths, .bodies = bodies};

    return lengths ? go_through_all(&walk) : -ENOMEM;
}
