/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Returns how many bytes on the disk an erasure frees. Blocks that other files share are counted apart: they are free
 * when the last of these files is gone.
 */
#include "maintain/erase/erase_set.h"

#include "maintain/usage/usage.h"
#include "store/graveyard/bundle.h"
#include <errno.h>
#include <fcntl.h>
#include <unistd.h>

#define BLOCK 512

/* A bundle: its blocks are freed as a whole when all its names go, and in proportion when others keep it. */
struct bundle {
    guint64 ino; /* the key */
    struct wb_erased_name *by;
    uint64_t disk, names, going, size, size_going;
};

struct measure {
    const struct wb_erasure *erasure;
    GHashTable *bundles; /* ino -> struct bundle */
};

static void add(struct wb_erased_name *by, uint64_t disk, uint64_t shared)
{
    by->freed.history += disk;
    by->freed.all += disk;
    by->freed.shared += shared;
}

/* Blocks of a file of the store: 1, 0 when it does not exist, or -errno. */
static int stat_file(const struct wb_store *store, struct wb_object object, enum wb_object_file file,
                     struct wb_erase_blocks *ret)
{
    bool buried = file == WB_FILE_DATA || file == WB_FILE_DIR;
    int dir_fd = buried ? store->grave_fd : store->dir_fd;
    char path[WB_OBJECT_PATH_MAX];
    struct stat st;

    *ret = (struct wb_erase_blocks){0};
    if (dir_fd < 0)
        return 0;
    wb_object_path(object, file, path);
    if (fstatat(dir_fd, path, &st, AT_SYMLINK_NOFOLLOW) < 0)
        return errno == ENOENT ? 0 : -errno;
    *ret = wb_erase_blocks(dir_fd, path, &st);
    return 1;
}

struct wb_erase_blocks wb_erase_blocks(int dir_fd, const char *path, const struct stat *st)
{
    struct wb_erase_blocks blocks = {.disk = (uint64_t)st->st_blocks * BLOCK, .links = st->st_nlink};
    int fd;

    if (!S_ISREG(st->st_mode) || st->st_blocks == 0)
        return blocks;
    fd = openat(dir_fd, path, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_NOATIME | O_CLOEXEC);
    if (fd < 0)
        return blocks;
    blocks.shared = MIN(wb_usage_shared(fd), blocks.disk);
    close(fd);
    return blocks;
}

static int count_file(const struct wb_erasure *erasure, const struct wb_doomed *doomed, enum wb_object_file file)
{
    struct wb_erase_blocks blocks;
    int r = stat_file(erasure->store, doomed->object, file, &blocks);

    /* A deleted file that still has a name in the tree occupies the blocks of that name. */
    if (r > 0 && (blocks.links == 1 || file == WB_FILE_DIR))
        add(doomed->by, blocks.disk - blocks.shared, blocks.shared);
    return MIN(r, 0);
}

/* The log of an object that stays is replaced by one that only says that its past is unknown: one block. */
static int count_log(const struct wb_erasure *erasure, const struct wb_doomed *doomed, bool stays, bool goes_later)
{
    enum wb_object_file file = doomed->is_dir ? WB_FILE_CATALOG : WB_FILE_UNDO;
    struct wb_erase_blocks blocks;
    struct stat st;
    uint64_t rest;
    int r = stat_file(erasure->store, doomed->object, file, &blocks);

    if (r <= 0)
        return r;
    if (fstat(erasure->store->dir_fd, &st) < 0)
        return -errno;
    rest = stays ? MIN((uint64_t)st.st_blksize, blocks.disk) : 0;
    add(doomed->by, blocks.disk - rest, 0);
    if (goes_later)
        doomed->by->freed.all += rest;
    return 0;
}

static int count_bundle(const struct measure *measure, const struct wb_doomed *doomed, enum wb_object_file file)
{
    const struct wb_bundle_member *member;
    struct wb_bundle *bundle;
    struct bundle *known;
    struct stat st;
    guint64 ino;
    int r = wb_bundle_open(measure->erasure->store, doomed->object, file, &bundle);

    /* A damaged one is erased all the same. */
    if (r != 0)
        return r == WB_ABSENT || r == -EBADMSG ? 0 : r;
    if (fstat(bundle->fd, &st) < 0) {
        r = -errno;
        wb_bundle_free(bundle);
        return r;
    }
    ino = st.st_ino;
    known = g_hash_table_lookup(measure->bundles, &ino);
    if (!known) {
        known = g_new0(struct bundle, 1);
        *known = (struct bundle){.ino = ino, .by = doomed->by, .disk = (uint64_t)st.st_blocks * BLOCK,
                                 .names = st.st_nlink};
        for (uint32_t i = 0; i < bundle->count; i++)
            known->size += bundle->members[i].size;
        g_hash_table_insert(measure->bundles, &known->ino, known);
    }
    member = wb_bundle_find(bundle, doomed->object);
    known->going++;
    known->size_going += member ? member->size : 0;
    wb_bundle_free(bundle);
    return 0;
}

static int count_object(const struct measure *measure, const struct wb_doomed *doomed)
{
    const struct wb_erasure *erasure = measure->erasure;
    bool goes_later, stays;
    int r;

    if (doomed->is_dir) {
        goes_later = stays = doomed->here;
    } else {
        r = wb_grave_has(erasure->store, doomed->object, false);
        if (r < 0)
            return r;
        /* Each of its names is erased. */
        goes_later = doomed->here && doomed->names + (unsigned)r >= doomed->blocks.links;
        r = wb_erasure_lives_on(erasure, doomed->object);
        if (r < 0)
            return r;
        stays = r;
    }
    r = count_log(erasure, doomed, stays, goes_later);
    if (goes_later) {
        doomed->by->freed.all += doomed->blocks.disk - doomed->blocks.shared;
        doomed->by->freed.shared += doomed->blocks.shared;
    }
    if (r >= 0 && doomed->is_dir)
        return doomed->here ? 0 : count_file(erasure, doomed, WB_FILE_DIR);
    if (r >= 0)
        r = count_file(erasure, doomed, WB_FILE_DATA);
    if (r >= 0)
        r = count_file(erasure, doomed, WB_FILE_IMAGE);
    if (r >= 0)
        r = count_bundle(measure, doomed, WB_FILE_BUNDLE);
    return r < 0 ? r : count_bundle(measure, doomed, WB_FILE_BUNDLE_OLD);
}

static void add_bundles(GHashTable *bundles)
{
    GHashTableIter iter;
    void *value;

    g_hash_table_iter_init(&iter, bundles);
    while (g_hash_table_iter_next(&iter, NULL, &value)) {
        const struct bundle *bundle = value;
        double part = bundle->going >= bundle->names || bundle->size == 0
                          ? 1.0
                          : (double)bundle->size_going / (double)bundle->size;

        add(bundle->by, (uint64_t)((double)bundle->disk * part), 0);
    }
}

int wb_erasure_measure(const struct wb_erasure *erasure)
{
    g_autoptr(GHashTable) bundles = g_hash_table_new_full(g_int64_hash, g_int64_equal, NULL, g_free);
    struct measure measure = {erasure, bundles};
    GHashTableIter iter;
    void *value;
    int r = 0;

    g_hash_table_iter_init(&iter, erasure->objects);
    while (r >= 0 && g_hash_table_iter_next(&iter, NULL, &value)) {
        const struct wb_doomed *doomed = value;

        if (doomed->doom == WB_DOOM_PAST)
            r = count_object(&measure, doomed);
    }
    add_bundles(bundles);
    return MIN(r, 0);
}
