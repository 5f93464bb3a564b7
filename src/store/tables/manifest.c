/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "store/tables/manifest.h"

#include "base/cleanup.h"
#include "base/io.h"
#include "wayback/when.h"
#include <errno.h>
#include <fcntl.h>
#include <glib.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* Entries that wait to be written; beyond that, their shard counts as incomplete. */
#define PENDING_MAX (1u << 16)
/* Readers without a lock may meet a bucket that is being written, or a table that is being replaced. */
#define TRIES 8
#define NONE UINT32_MAX

/* An entry that waits until its log is on stable storage. */
struct pending {
    struct wb_manifest_entry entry;
    bool ready; /* captured: the next sync covers it */
    uint32_t next;
};

struct wb_manifest {
    pthread_mutex_t lock; /* for changing the tables */
    struct wb_manifest_shards shards;
    bool shards_damaged;
    uint8_t unsynced[WB_SHARDS / 8]; /* tables with withdrawn entries that are not on stable storage */
    pthread_mutex_t pending_lock; /* after `lock`; for what follows, and shards.complete */
    struct pending *pending;
    uint32_t *chains; /* `room` of them */
    uint32_t room, used, free, count;
    unsigned turn; /* the shard that is looked through next for deleted files without checksums */
};

static unsigned shard_of(struct wb_object object)
{
    return object.ino & 0xff;
}

static bool bit_get(const uint8_t *bits, unsigned shard)
{
    return bits[shard / 8] >> shard % 8 & 1;
}

static void bit_set(uint8_t *bits, unsigned shard, bool value)
{
    uint8_t mask = (uint8_t)(1u << shard % 8);

    bits[shard / 8] = (uint8_t)(value ? bits[shard / 8] | mask : bits[shard / 8] & ~mask);
}

static bool same_log(const struct wb_manifest_entry *entry, struct wb_object object, enum wb_object_file file)
{
    return entry->file == file && wb_object_equal(entry->object, object);
}

static bool same_key(const struct wb_manifest_entry *a, const struct wb_manifest_entry *b)
{
    return same_log(a, b->object, b->file) && a->block == b->block;
}

static bool same_entry(const struct wb_manifest_entry *a, const struct wb_manifest_entry *b)
{
    return same_key(a, b) && a->end == b->end && a->when == b->when && a->check == b->check;
}

/* ---- a table ----------------------------------------------------------------------------------- */

struct table {
    int fd;
    unsigned shard, bits;
};

#define TABLE_PATH_MAX (sizeof(WB_MANIFEST_NAME) + 16)

static void table_path(unsigned shard, const char *suffix, char path[TABLE_PATH_MAX])
{
    snprintf(path, TABLE_PATH_MAX, WB_MANIFEST_NAME "/%02x%s", shard & 0xff, suffix);
}

static void table_close(struct table *table)
{
    wb_close_fd(&table->fd);
}
#define _cleanup_table_ __attribute__((cleanup(table_close)))
#define TABLE_CLOSED {.fd = -1}

/* 0, -ENOENT, -EBADMSG where its head is damaged, or another -errno. */
static int table_open(struct table *table, int dir_fd, unsigned shard, int flags)
{
    uint8_t data[WB_MANIFEST_SECTOR];
    char path[TABLE_PATH_MAX];
    int r;

    table_path(shard, "", path);
    *table = (struct table){.fd = wb_open_own(dir_fd, path, flags, 0600), .shard = shard};
    if (table->fd < 0)
        return table->fd;
    r = wb_pread_exact(table->fd, data, sizeof(data), 0);
    if (r == 0)
        r = wb_manifest_head_decode(data, shard, &table->bits);
    if (r < 0)
        table_close(table);
    return r == -ENODATA ? -EBADMSG : r;
}

static uint64_t bucket_offset(uint32_t number)
{
    return ((uint64_t)number + 1) * WB_MANIFEST_SECTOR;
}

static int bucket_read(const struct table *table, uint32_t number, struct wb_manifest_bucket *ret)
{
    uint8_t data[WB_MANIFEST_SECTOR];
    int r = wb_pread_exact(table->fd, data, sizeof(data), bucket_offset(number));

    if (r == 0)
        r = wb_manifest_bucket_decode(data, number, ret);
    return r == -ENODATA ? -EBADMSG : r;
}

static int bucket_write(const struct table *table, uint32_t number, const struct wb_manifest_bucket *bucket)
{
    uint8_t data[WB_MANIFEST_SECTOR];

    wb_manifest_bucket_encode(bucket, number, data);
    return wb_pwrite_full(table->fd, data, sizeof(data), bucket_offset(number));
}

/* Where the entry of the same log or block is: 1 with all filled, 0 or -errno. */
static int table_find(const struct table *table, const struct wb_manifest_entry *key,
                      struct wb_manifest_bucket *bucket, uint32_t *ret_number, unsigned *ret_index)
{
    uint32_t mask = (UINT32_C(1) << table->bits) - 1;
    uint32_t first = wb_manifest_hash(key->object, key->file, key->block, table->bits);

    for (uint32_t i = 0; i < WB_MANIFEST_PROBES && i <= mask; i++) {
        uint32_t number = (first + i) & mask;
        int r = bucket_read(table, number, bucket);

        if (r < 0)
            return r;
        for (unsigned j = 0; j < bucket->count; j++) {
            if (!same_key(&bucket->entries[j], key))
                continue;
            *ret_number = number;
            *ret_index = j;
            return 1;
        }
        if (!bucket->overflowed)
            break;
    }
    return 0;
}

/* Adds an entry, or replaces that of the same log: 0, -EOVERFLOW where the table must grow first, or -errno. */
static int table_put(const struct table *table, const struct wb_manifest_entry *entry)
{
    uint32_t mask = (UINT32_C(1) << table->bits) - 1, number;
    uint32_t first = wb_manifest_hash(entry->object, entry->file, entry->block, table->bits);
    struct wb_manifest_bucket bucket;
    unsigned index;
    int r = table_find(table, entry, &bucket, &number, &index);

    if (r < 0)
        return r;
    if (r > 0) {
        bucket.entries[index] = *entry;
        return bucket_write(table, number, &bucket);
    }
    for (uint32_t i = 0; i < WB_MANIFEST_PROBES && i <= mask; i++) {
        number = (first + i) & mask;
        r = bucket_read(table, number, &bucket);
        if (r < 0)
            return r;
        if (bucket.count < WB_MANIFEST_BUCKET) {
            bucket.entries[bucket.count++] = *entry;
            return bucket_write(table, number, &bucket);
        }
        /* Before the entry is behind it: a search that comes between finds none, as before. */
        if (!bucket.overflowed) {
            bucket.overflowed = true;
            r = bucket_write(table, number, &bucket);
            if (r < 0)
                return r;
        }
    }
    return -EOVERFLOW;
}

/* An empty one under its temporary name. */
static int table_make(struct table *table, int dir_fd, unsigned shard, unsigned bits)
{
    struct wb_manifest_bucket empty = {0};
    uint8_t data[WB_MANIFEST_SECTOR];
    char path[TABLE_PATH_MAX];
    int r;

    if (bits > WB_MANIFEST_BITS_MAX)
        return -EFBIG;
    table_path(shard, ".new", path);
    *table = (struct table){.fd = wb_create_own(dir_fd, path, O_RDWR), .shard = shard, .bits = bits};
    if (table->fd < 0)
        return table->fd;
    wb_manifest_head_encode(shard, bits, data);
    r = wb_pwrite_full(table->fd, data, sizeof(data), 0);
    for (uint32_t i = 0; r == 0 && i < UINT32_C(1) << bits; i++)
        r = bucket_write(table, i, &empty);
    return r;
}

/* The new table takes the name of the old one, if there is one, on stable storage. */
static int table_publish(const struct table *table, int dir_fd)
{
    _cleanup_close_ int dir = openat(dir_fd, WB_MANIFEST_NAME, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    char path[TABLE_PATH_MAX], temporary[TABLE_PATH_MAX];

    table_path(table->shard, "", path);
    table_path(table->shard, ".new", temporary);
    if (dir < 0 || fsync(table->fd) < 0 || renameat(dir_fd, temporary, dir_fd, path) < 0)
        return -errno;
    return wb_fsync_dir(dir);
}

static void table_discard(int dir_fd, unsigned shard)
{
    char path[TABLE_PATH_MAX];

    table_path(shard, ".new", path);
    unlinkat(dir_fd, path, 0);
}

static int table_copy(const struct table *from, const struct table *to)
{
    struct wb_manifest_bucket bucket;
    int r = 0;

    for (uint32_t i = 0; r == 0 && i < UINT32_C(1) << from->bits; i++) {
        r = bucket_read(from, i, &bucket);
        for (unsigned j = 0; r == 0 && j < bucket.count; j++)
            r = table_put(to, &bucket.entries[j]);
    }
    return r;
}

static int table_grow(struct table *table, int dir_fd)
{
    struct table grown = TABLE_CLOSED;
    int r = -EOVERFLOW;

    for (unsigned bits = table->bits + 1; r == -EOVERFLOW; bits++) {
        table_close(&grown);
        r = table_make(&grown, dir_fd, table->shard, bits);
        if (r == 0)
            r = table_copy(table, &grown);
    }
    if (r == 0)
        r = table_publish(&grown, dir_fd);
    if (r < 0) {
        table_close(&grown);
        table_discard(dir_fd, table->shard);
        return r;
    }
    table_close(table);
    *table = grown;
    return 0;
}

static int table_put_growing(struct table *table, int dir_fd, const struct wb_manifest_entry *entry)
{
    int r;

    while ((r = table_put(table, entry)) == -EOVERFLOW) {
        r = table_grow(table, dir_fd);
        if (r < 0)
            return r;
    }
    return r;
}

/* ---- which tables there must be ------------------------------------------------------------------ */

static int shards_read(int dir_fd, struct wb_manifest_shards *ret)
{
    _cleanup_close_ int fd = wb_open_own(dir_fd, WB_MANIFEST_NAME "/shards", O_RDONLY, 0);
    uint8_t data[WB_MANIFEST_SHARDS_SIZE + 1];
    size_t length = 0;
    int r = fd < 0 ? fd : wb_pread_full(fd, data, sizeof(data), 0, &length);

    if (r < 0)
        return r == -ENOENT || r == -ENOTDIR ? -EBADMSG : r;
    return wb_manifest_shards_decode(data, length, ret);
}

static int shards_replace(const struct wb_store *store, const struct wb_manifest_shards *shards)
{
    _cleanup_close_ int dir = openat(store->dir_fd, WB_MANIFEST_NAME, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    uint8_t data[WB_MANIFEST_SHARDS_SIZE];

    if (dir < 0)
        return -errno;
    wb_manifest_shards_encode(shards, data);
    return wb_replace_file(dir, "shards", data, sizeof(data), 0600);
}

/* While a store is open for writing, its file says that no shard is complete: a crash must leave it so. */
static int shards_mark(const struct wb_store *store, bool closing)
{
    _cleanup_close_ int fd = wb_open_own(store->dir_fd, WB_MANIFEST_NAME "/shards", O_RDWR, 0);
    struct wb_manifest_shards shards = store->manifest->shards;
    uint8_t data[WB_MANIFEST_SHARDS_SIZE];

    if (fd < 0)
        return fd;
    if (!closing) {
        memset(shards.complete, 0, sizeof(shards.complete));
        memset(shards.summed, 0, sizeof(shards.summed));
    }
    wb_manifest_shards_encode(&shards, data);
    return wb_pwrite_full(fd, data, sizeof(data), 0);
}

/* A shard without a table: 0 where it never had one, -EBADMSG where one must be there, or that is not known. */
static int shard_is_new(const struct wb_store *store, unsigned shard)
{
    struct wb_manifest_shards shards;
    int r;

    if (store->manifest)
        return store->manifest->shards_damaged || bit_get(store->manifest->shards.begun, shard) ? -EBADMSG : 0;
    r = shards_read(store->dir_fd, &shards);
    return r < 0 ? r : bit_get(shards.begun, shard) ? -EBADMSG : 0;
}

/* ---- entries that wait ----------------------------------------------------------------------------- */

static uint32_t *chain_of(const struct wb_manifest *manifest, struct wb_object object, enum wb_object_file file)
{
    return &manifest->chains[wb_manifest_hash(object, file, 0, 32) & (manifest->room - 1)];
}

static struct pending *pending_find(const struct wb_manifest *manifest, struct wb_object object,
                                    enum wb_object_file file)
{
    if (manifest->count == 0)
        return NULL;
    for (uint32_t i = *chain_of(manifest, object, file); i != NONE; i = manifest->pending[i].next)
        if (same_log(&manifest->pending[i].entry, object, file))
            return &manifest->pending[i];
    return NULL;
}

static bool pending_reserve(struct wb_manifest *manifest)
{
    uint32_t room = MAX(2 * manifest->room, 256u);
    struct pending *pending;
    uint32_t *chains;

    if (manifest->free != NONE || manifest->used < manifest->room)
        return true;
    if (room > PENDING_MAX)
        return false;
    chains = malloc(room * sizeof(*chains));
    pending = chains ? realloc(manifest->pending, room * sizeof(*pending)) : NULL;
    if (!pending) {
        free(chains);
        return false;
    }
    free(manifest->chains);
    manifest->pending = pending;
    manifest->chains = chains;
    manifest->room = room;
    memset(chains, 0xff, room * sizeof(*chains));
    for (uint32_t i = 0; i < manifest->used; i++) {
        uint32_t *chain = chain_of(manifest, pending[i].entry.object, pending[i].entry.file);

        pending[i].next = *chain;
        *chain = i;
    }
    return true;
}

/* With pending_lock held. False: there is no room for it, and its shard is incomplete. */
static bool pending_put(struct wb_manifest *manifest, const struct wb_manifest_entry *entry, bool ready)
{
    struct pending *found = pending_find(manifest, entry->object, entry->file);
    uint32_t place, *chain;

    if (!found) {
        if (!pending_reserve(manifest)) {
            bit_set(manifest->shards.complete, shard_of(entry->object), false);
            return false;
        }
        place = manifest->free != NONE ? manifest->free : manifest->used++;
        found = &manifest->pending[place];
        if (place == manifest->free)
            manifest->free = found->next;
        chain = chain_of(manifest, entry->object, entry->file);
        found->next = *chain;
        *chain = place;
        manifest->count++;
    }
    found->entry = *entry;
    found->ready = ready;
    return true;
}

static void pending_remove(struct wb_manifest *manifest, struct wb_object object, enum wb_object_file file)
{
    struct pending *found = pending_find(manifest, object, file);
    uint32_t place, *link;

    if (!found)
        return;
    place = (uint32_t)(found - manifest->pending);
    link = chain_of(manifest, object, file);
    while (*link != place)
        link = &manifest->pending[*link].next;
    *link = found->next;
    *found = (struct pending){.next = manifest->free};
    manifest->free = place;
    manifest->count--;
}

/* ---- looking ---------------------------------------------------------------------------------------- */

static int find_once(const struct wb_store *store, const struct wb_manifest_entry *key, struct wb_manifest_entry *ret)
{
    _cleanup_table_ struct table table = TABLE_CLOSED;
    struct wb_manifest_bucket bucket;
    uint32_t number;
    unsigned index;
    int r = table_open(&table, store->dir_fd, shard_of(key->object), O_RDONLY);

    if (r == -ENOENT)
        return shard_is_new(store, shard_of(key->object));
    if (r == 0)
        r = table_find(&table, key, &bucket, &number, &index);
    if (r > 0)
        *ret = bucket.entries[index];
    return r;
}

static int find(const struct wb_store *store, const struct wb_manifest_entry *key, struct wb_manifest_entry *ret)
{
    int r = -EBADMSG;

    if (!store->header.manifest)
        return 0;
    for (int i = 0; r == -EBADMSG && i < TRIES; i++)
        r = find_once(store, key, ret);
    if (r == -EBADMSG && store->manifest) {
        /* With nobody writing, to be sure. */
        pthread_mutex_lock(&store->manifest->lock);
        r = find_once(store, key, ret);
        pthread_mutex_unlock(&store->manifest->lock);
    }
    return r;
}

int wb_manifest_find(const struct wb_store *store, struct wb_object object, enum wb_object_file file,
                     struct wb_manifest_entry *ret)
{
    struct wb_manifest_entry key = {.object = object, .file = file};

    return find(store, &key, ret);
}

int wb_manifest_find_block(const struct wb_store *store, struct wb_object object, uint32_t block,
                           struct wb_manifest_entry *ret)
{
    struct wb_manifest_entry key = {.object = object, .file = WB_FILE_DATA, .block = block};

    return find(store, &key, ret);
}

/*
 * Where a log that was packed begins with neither a record nor a head of the pack, its offsets are not known: then it
 * is whole if its last record is not older than the listed one. Damage in it is found by reading it.
 */
static int has_offsets(int fd)
{
    uint8_t first[4];
    struct wb_log_bytes bytes;
    bool packed;
    int r = wb_log_bytes_open(&bytes, fd);

    if (r < 0)
        return r;
    packed = bytes.map;
    wb_log_bytes_close(&bytes);
    r = packed ? 0 : wb_pread_exact(fd, first, sizeof(first), 0);
    if (r < 0)
        return r == -ENODATA ? 1 : r;
    return packed || wb_record_is_magic(first);
}

/*
 * How far the log reaches in sound records, or damaged ones, which stay where they are; 0: it is not there. *ret_when:
 * of the last one, if the offsets are not known, else 0.
 */
static int sound_end(const struct wb_store *store, struct wb_object object, enum wb_object_file file, uint64_t *ret,
                     int64_t *ret_when)
{
    _cleanup_close_ int fd = -1;
    struct wb_log_reader reader;
    struct wb_record record;
    char path[WB_OBJECT_PATH_MAX];
    int r;

    *ret = 0;
    *ret_when = 0;
    wb_object_path(object, file, path);
    fd = wb_open_own(store->dir_fd, path, O_RDONLY, 0);
    if (fd < 0)
        return fd == -ENOENT ? 0 : fd;
    r = wb_log_reader_init(&reader, fd);
    if (r < 0)
        return r;
    r = wb_log_reader_prev(&reader, &record);
    *ret = r == 0            ? record.offset + record.total
           : r == WB_DAMAGED ? reader.damaged_to
                             : wb_log_bytes_unpacked(&reader.bytes);
    if (r == 0 && has_offsets(fd) == 0)
        *ret_when = record.when;
    wb_log_reader_deinit(&reader);
    return r < 0 ? r : 0;
}

int wb_manifest_check(const struct wb_store *store, struct wb_object object, enum wb_object_file file)
{
    struct wb_manifest_entry before, after;
    int64_t when;
    uint64_t end;
    int r = wb_manifest_find(store, object, file, &before);

    for (int i = 0; i < TRIES && r > 0; i++) {
        r = sound_end(store, object, file, &end, &when);
        if (r < 0)
            return r;
        if (end >= before.end || (when > 0 && when >= before.when))
            return 0;
        /* The entry is withdrawn before the log goes: one that is still the same was true all the time. */
        r = wb_manifest_find(store, object, file, &after);
        if (r > 0 && same_entry(&before, &after))
            return 1;
        before = after;
    }
    return r > 0 ? -EAGAIN : r;
}

/* ---- opening ------------------------------------------------------------------------------------------ */

/* What may be left from a time when the header did not say that there is a manifest. */
static int clear_directory(int dir_fd)
{
    char path[TABLE_PATH_MAX];

    for (unsigned shard = 0; shard < WB_SHARDS; shard++) {
        table_path(shard, "", path);
        if (unlinkat(dir_fd, path, 0) < 0 && errno != ENOENT)
            return -errno;
        table_discard(dir_fd, shard);
    }
    return 0;
}

static int begin(struct wb_store *store)
{
    struct wb_header header = store->header;
    uint8_t data[WB_HEADER_SIZE];
    int r;

    if (mkdirat(store->dir_fd, WB_MANIFEST_NAME, 0700) < 0) {
        r = errno == EEXIST ? clear_directory(store->dir_fd) : -errno;
        if (r < 0)
            return r;
    }
    /* A new store has no logs: nothing is missing from its manifest. */
    memset(store->manifest->shards.complete, store->is_new ? 0xff : 0, sizeof(store->manifest->shards.complete));
    memset(store->manifest->shards.summed, store->is_new ? 0xff : 0, sizeof(store->manifest->shards.summed));
    r = shards_replace(store, &store->manifest->shards);
    if (r < 0)
        return r;
    header.manifest = true;
    wb_header_encode(&header, data);
    r = wb_replace_file(store->dir_fd, WB_HEADER_NAME, data, sizeof(data), 0600);
    if (r == 0)
        store->header.manifest = true;
    return r;
}

static int open_shards(struct wb_store *store)
{
    struct wb_manifest *manifest = store->manifest;
    int r;

    if (!store->header.manifest) {
        r = begin(store);
        if (r < 0)
            return r;
    } else {
        r = shards_read(store->dir_fd, &manifest->shards);
        if (r < 0 && r != -EBADMSG)
            return r;
        manifest->shards_damaged = r < 0;
    }
    if (manifest->shards_damaged)
        return 0;
    if (store->stamps.unclean) {
        memset(manifest->shards.complete, 0, sizeof(manifest->shards.complete));
        memset(manifest->shards.summed, 0, sizeof(manifest->shards.summed));
    }
    r = shards_mark(store, false);
    /* Then a crash may leave logs without an entry until the next clean end. */
    return r == -ENOSPC || r == -EDQUOT ? 0 : r;
}

int wb_manifest_open(struct wb_store *store)
{
    struct wb_manifest *manifest = g_try_new0(struct wb_manifest, 1);
    int r;

    if (!manifest)
        return -ENOMEM;
    manifest->free = NONE;
    pthread_mutex_init(&manifest->lock, NULL);
    pthread_mutex_init(&manifest->pending_lock, NULL);
    store->manifest = manifest;
    r = open_shards(store);
    if (r < 0) {
        /* A manifest that could not be opened must not mark shards as complete. */
        manifest->shards_damaged = true;
        store->manifest = wb_manifest_free(store);
    }
    /* It is no use to refuse the store for want of room: the next mount begins the manifest. */
    return r == -ENOSPC || r == -EDQUOT ? 0 : r;
}

struct wb_manifest *wb_manifest_free(struct wb_store *store)
{
    struct wb_manifest *manifest = store->manifest;

    if (!manifest)
        return NULL;
    if (store->writable && store->header.manifest && !manifest->shards_damaged)
        (void)shards_mark(store, true);
    pthread_mutex_destroy(&manifest->lock);
    pthread_mutex_destroy(&manifest->pending_lock);
    free(manifest->pending);
    free(manifest->chains);
    g_free(manifest);
    return NULL;
}

/* ---- logs that are opened and closed ---------------------------------------------------------- */

bool wb_manifest_log_opened(struct wb_store *store, struct wb_log *log, struct wb_object object,
                            enum wb_object_file file)
{
    struct wb_manifest *manifest = store->manifest;
    struct wb_manifest_entry entry = {0};
    struct pending *waiting;
    int r;

    if (!manifest)
        return false;
    r = wb_manifest_find(store, object, file, &entry);
    pthread_mutex_lock(&manifest->pending_lock);
    waiting = pending_find(manifest, object, file);
    if (waiting && (r <= 0 || waiting->entry.end > entry.end)) {
        entry = waiting->entry;
        r = 1;
    }
    pthread_mutex_unlock(&manifest->pending_lock);
    log->listed_known = r >= 0;
    log->listed = r > 0 ? entry.end : 0;
    log->unlisted = log->tail > log->listed;
    return log->tail < log->listed && !(log->last_when >= entry.when && has_offsets(log->fd) == 0);
}

static int put_now(struct wb_store *store, const struct wb_manifest_entry *entry)
{
    struct wb_manifest *manifest = store->manifest;
    _cleanup_table_ struct table table = TABLE_CLOSED;
    int r;

    pthread_mutex_lock(&manifest->lock);
    pthread_mutex_lock(&manifest->pending_lock);
    pending_remove(manifest, entry->object, entry->file);
    pthread_mutex_unlock(&manifest->pending_lock);
    r = table_open(&table, store->dir_fd, shard_of(entry->object), O_RDWR);
    if (r == 0)
        r = table_put_growing(&table, store->dir_fd, entry);
    pthread_mutex_unlock(&manifest->lock);
    return r;
}

int wb_manifest_log_mended(struct wb_store *store, struct wb_log *log, struct wb_object object,
                           enum wb_object_file file)
{
    struct wb_manifest_entry entry = {object, file, log->tail, log->last_when};
    char path[WB_OBJECT_PATH_MAX];
    int r;

    if (!store->manifest)
        return 0;
    wb_object_path(object, file, path);
    r = fdatasync(log->fd) < 0 ? -errno : wb_log_sync_name(store->dir_fd, path);
    if (r == 0)
        r = put_now(store, &entry);
    /* A shard whose table is not made yet has no entry that says too much; the log is listed with the next ones. */
    if (r == -ENOENT) {
        __atomic_store_n(&log->unlisted, true, __ATOMIC_RELAXED);
        return 0;
    }
    if (r == 0) {
        log->listed = log->tail;
        __atomic_store_n(&log->unlisted, false, __ATOMIC_RELAXED);
    }
    return r;
}

void wb_manifest_note(struct wb_manifest *manifest, struct wb_object object, enum wb_object_file file,
                      const struct wb_log *log)
{
    struct wb_manifest_entry entry = {object, file, log->tail, log->last_when};

    if (!manifest || !__atomic_load_n(&log->unlisted, __ATOMIC_RELAXED) || log->tail == 0)
        return;
    pthread_mutex_lock(&manifest->pending_lock);
    /* Without room for it, the shard is incomplete, and the log is met again. */
    (void)pending_put(manifest, &entry, false);
    pthread_mutex_unlock(&manifest->pending_lock);
}

/* *ret_begun: it was made just now. With `lock` held. */
static int open_or_begin(const struct wb_store *store, struct table *table, unsigned shard, bool *ret_begun)
{
    int r = table_open(table, store->dir_fd, shard, O_RDWR);

    if (r != -ENOENT)
        return r;
    r = shard_is_new(store, shard);
    if (r == 0)
        r = table_make(table, store->dir_fd, shard, 0);
    if (r == 0)
        r = table_publish(table, store->dir_fd);
    *ret_begun |= r == 0;
    return r;
}

/* Its table must be there from now on. With `lock` held. */
static void note_begun(struct wb_store *store, unsigned shard)
{
    struct wb_manifest_shards shards = store->manifest->shards;

    bit_set(shards.begun, shard, true);
    memset(shards.complete, 0, sizeof(shards.complete));
    memset(shards.summed, 0, sizeof(shards.summed));
    if (shards_replace(store, &shards) == 0)
        memcpy(store->manifest->shards.begun, shards.begun, sizeof(shards.begun));
}

/* ---- withdrawing --------------------------------------------------------------------------------------- */

static int table_remove(const struct table *table, const struct wb_manifest_entry *key)
{
    struct wb_manifest_bucket bucket;
    uint32_t number;
    unsigned index;
    int r = table_find(table, key, &bucket, &number, &index);

    if (r <= 0)
        return r;
    bucket.entries[index] = bucket.entries[--bucket.count];
    r = bucket_write(table, number, &bucket);
    return r < 0 ? r : 1;
}

int wb_manifest_withdraw(struct wb_store *store, struct wb_object object, enum wb_object_file file, bool durable)
{
    struct wb_manifest *manifest = store->manifest;
    _cleanup_table_ struct table table = TABLE_CLOSED;
    unsigned shard = shard_of(object);
    int r;

    if (!manifest || file > WB_FILE_CATALOG)
        return 0;
    pthread_mutex_lock(&manifest->lock);
    pthread_mutex_lock(&manifest->pending_lock);
    pending_remove(manifest, object, file);
    bit_set(manifest->shards.complete, shard, false);
    pthread_mutex_unlock(&manifest->pending_lock);
    r = table_open(&table, store->dir_fd, shard, O_RDWR);
    if (r == 0)
        r = table_remove(&table, &(struct wb_manifest_entry){.object = object, .file = file});
    if (r > 0)
        bit_set(manifest->unsynced, shard, true);
    if (r >= 0 && durable && bit_get(manifest->unsynced, shard)) {
        r = fdatasync(table.fd) < 0 ? -errno : 0;
        bit_set(manifest->unsynced, shard, r < 0);
    }
    pthread_mutex_unlock(&manifest->lock);
    /* What is damaged is no entry that could be taken for a true one. */
    return r == -ENOENT || r == -EBADMSG ? 0 : MIN(r, 0);
}

/* From the last block to the first: while that is there, all are. */
static int remove_blocks(const struct table *table, struct wb_object object)
{
    struct wb_manifest_entry key = {.object = object, .file = WB_FILE_DATA};
    struct wb_manifest_bucket bucket;
    uint32_t number, blocks;
    unsigned index;
    int r = table_find(table, &key, &bucket, &number, &index);

    if (r <= 0)
        return r;
    blocks = (uint32_t)((bucket.entries[index].end + WB_BODY_BLOCK - 1) / WB_BODY_BLOCK);
    /* The first goes at once, so that nobody believes the others any more. */
    r = table_remove(table, &key);
    for (key.block = 1; r >= 0 && key.block < blocks; key.block++)
        r = table_remove(table, &key);
    return r < 0 ? r : 1;
}

int wb_manifest_withdraw_body(struct wb_store *store, struct wb_object object, bool durable)
{
    struct wb_manifest *manifest = store->manifest;
    _cleanup_table_ struct table table = TABLE_CLOSED;
    unsigned shard = shard_of(object);
    int r;

    if (!manifest)
        return 0;
    pthread_mutex_lock(&manifest->lock);
    r = table_open(&table, store->dir_fd, shard, O_RDWR);
    if (r == 0)
        r = remove_blocks(&table, object);
    if (r > 0 && durable && fdatasync(table.fd) < 0)
        r = -errno;
    pthread_mutex_unlock(&manifest->lock);
    return r == -ENOENT || r == -EBADMSG ? 0 : MIN(r, 0);
}

static int forget_bodies_of(int dir_fd, unsigned shard)
{
    _cleanup_table_ struct table table = TABLE_CLOSED;
    struct wb_manifest_bucket bucket;
    int r = table_open(&table, dir_fd, shard, O_RDWR);

    for (uint32_t i = 0; r == 0 && i < UINT32_C(1) << table.bits; i++) {
        unsigned kept = 0;

        if (bucket_read(&table, i, &bucket) < 0)
            continue;
        for (unsigned j = 0; j < bucket.count; j++)
            if (bucket.entries[j].file != WB_FILE_DATA)
                bucket.entries[kept++] = bucket.entries[j];
        if (kept == bucket.count)
            continue;
        bucket.count = kept;
        r = bucket_write(&table, i, &bucket);
    }
    if (r == 0 && fdatasync(table.fd) < 0)
        r = -errno;
    return r == -ENOENT || r == -EBADMSG || r == -ENOTDIR ? 0 : r;
}

int wb_manifest_forget_bodies(int dir_fd)
{
    uint8_t data[WB_MANIFEST_SHARDS_SIZE];
    struct wb_manifest_shards shards;
    int r = 0;

    if (shards_read(dir_fd, &shards) == 0) {
        _cleanup_close_ int fd = wb_open_own(dir_fd, WB_MANIFEST_NAME "/shards", O_RDWR, 0);

        memset(shards.summed, 0, sizeof(shards.summed));
        wb_manifest_shards_encode(&shards, data);
        r = fd < 0 ? fd : wb_pwrite_full(fd, data, sizeof(data), 0);
    }
    for (unsigned shard = 0; r == 0 && shard < WB_SHARDS; shard++)
        r = forget_bodies_of(dir_fd, shard);
    return r;
}

int wb_manifest_put_block(struct wb_store *store, struct wb_object object, uint32_t block, uint64_t size,
                          uint64_t check)
{
    struct wb_manifest_entry entry = {
        .object = object, .file = WB_FILE_DATA, .end = size, .block = block, .check = check};
    _cleanup_table_ struct table table = TABLE_CLOSED;
    bool begun = false;
    int r;

    if (!store->manifest)
        return 0;
    pthread_mutex_lock(&store->manifest->lock);
    r = open_or_begin(store, &table, shard_of(object), &begun);
    if (r == 0)
        r = table_put_growing(&table, store->dir_fd, &entry);
    if (begun)
        note_begun(store, shard_of(object));
    pthread_mutex_unlock(&store->manifest->lock);
    return r;
}

void wb_manifest_note_burial(struct wb_store *store, struct wb_object object)
{
    struct wb_manifest *manifest = store->manifest;

    if (!manifest)
        return;
    pthread_mutex_lock(&manifest->pending_lock);
    bit_set(manifest->shards.summed, shard_of(object), false);
    pthread_mutex_unlock(&manifest->pending_lock);
}

int wb_manifest_next_unsummed(struct wb_store *store)
{
    struct wb_manifest *manifest = store->manifest;
    int found = -1;

    if (!manifest || manifest->shards_damaged)
        return -1;
    pthread_mutex_lock(&manifest->pending_lock);
    for (unsigned i = 0; found < 0 && i < WB_SHARDS; i++) {
        unsigned shard = (manifest->turn + i) % WB_SHARDS;

        if (!bit_get(manifest->shards.summed, shard))
            found = (int)shard;
    }
    if (found >= 0) {
        manifest->turn = (unsigned)found + 1;
        bit_set(manifest->shards.summed, (unsigned)found, true);
    }
    pthread_mutex_unlock(&manifest->pending_lock);
    return found;
}

int wb_manifest_sync(struct wb_store *store)
{
    struct wb_manifest *manifest = store->manifest;
    int r = 0;

    if (!manifest)
        return 0;
    pthread_mutex_lock(&manifest->lock);
    for (unsigned shard = 0; r == 0 && shard < WB_SHARDS; shard++) {
        _cleanup_table_ struct table table = TABLE_CLOSED;

        if (!bit_get(manifest->unsynced, shard))
            continue;
        r = table_open(&table, store->dir_fd, shard, O_RDWR);
        if (r == 0 && fdatasync(table.fd) < 0)
            r = -errno;
        if (r == -ENOENT || r == -EBADMSG)
            r = 0;
        bit_set(manifest->unsynced, shard, r < 0);
    }
    pthread_mutex_unlock(&manifest->lock);
    return r;
}

/* ---- writing entries ------------------------------------------------------------------------------------ */

bool wb_manifest_put(void *data, const struct wb_manifest_entry *entry)
{
    struct wb_manifest *manifest = data;
    bool taken;

    pthread_mutex_lock(&manifest->pending_lock);
    taken = pending_put(manifest, entry, true);
    pthread_mutex_unlock(&manifest->pending_lock);
    return taken;
}

void wb_manifest_capture(struct wb_manifest *manifest)
{
    pthread_mutex_lock(&manifest->pending_lock);
    for (uint32_t i = 0; i < manifest->used; i++)
        manifest->pending[i].ready = true;
    pthread_mutex_unlock(&manifest->pending_lock);
}

static int compare(const void *a, const void *b)
{
    const struct wb_manifest_entry *x = a, *y = b;
    unsigned p = shard_of(x->object), q = shard_of(y->object);

    return p != q ? (p > q) - (p < q) : (x->object.ino > y->object.ino) - (x->object.ino < y->object.ino);
}

/* All that are captured, in the order of their shards. */
static struct wb_manifest_entry *list_ready(struct wb_manifest *manifest, size_t *ret_count)
{
    struct wb_manifest_entry *list = NULL;
    size_t count = 0;

    pthread_mutex_lock(&manifest->pending_lock);
    if (manifest->count > 0)
        list = malloc(manifest->count * sizeof(*list));
    for (uint32_t i = 0; list && i < manifest->used; i++)
        if (manifest->pending[i].ready && !wb_object_is_none(manifest->pending[i].entry.object))
            list[count++] = manifest->pending[i].entry;
    pthread_mutex_unlock(&manifest->pending_lock);
    if (list)
        qsort(list, count, sizeof(*list), compare);
    *ret_count = count;
    return list;
}

/* Takes an entry out of those that wait, unless it was withdrawn or replaced meanwhile. With `lock` held. */
static bool take_ready(struct wb_manifest *manifest, const struct wb_manifest_entry *entry)
{
    struct pending *found;
    bool same;

    pthread_mutex_lock(&manifest->pending_lock);
    found = pending_find(manifest, entry->object, entry->file);
    same = found && found->ready && same_entry(&found->entry, entry);
    if (same)
        pending_remove(manifest, entry->object, entry->file);
    pthread_mutex_unlock(&manifest->pending_lock);
    return same;
}

/* Entries of one shard; *ret_begun: it had no table before. With `lock` held. */
static int write_shard(struct wb_store *store, const struct wb_manifest_entry *list, size_t count, bool *ret_begun)
{
    _cleanup_table_ struct table table = TABLE_CLOSED;
    unsigned shard = shard_of(list->object);
    int r = open_or_begin(store, &table, shard, ret_begun);

    for (size_t i = 0; r == 0 && i < count; i++) {
        if (take_ready(store->manifest, &list[i]))
            r = table_put_growing(&table, store->dir_fd, &list[i]);
        /* A damaged bucket costs what is sought in it. */
        if (r == -EBADMSG)
            r = 0;
    }
    if (r < 0) {
        pthread_mutex_lock(&store->manifest->pending_lock);
        bit_set(store->manifest->shards.complete, shard, false);
        for (size_t i = 0; i < count; i++)
            pending_remove(store->manifest, list[i].object, list[i].file);
        pthread_mutex_unlock(&store->manifest->pending_lock);
    }
    return r;
}

void wb_manifest_write(struct wb_store *store)
{
    struct wb_manifest *manifest = store->manifest;
    struct wb_manifest_shards shards;
    struct wb_manifest_entry *list;
    bool any_begun = false;
    size_t count = 0, end;

    if (!manifest)
        return;
    list = list_ready(manifest, &count);
    shards = manifest->shards;
    for (size_t i = 0; i < count; i = end) {
        unsigned shard = shard_of(list[i].object);
        bool begun = false;

        for (end = i + 1; end < count && shard_of(list[end].object) == shard; end++)
            ;
        pthread_mutex_lock(&manifest->lock);
        (void)write_shard(store, list + i, end - i, &begun);
        pthread_mutex_unlock(&manifest->lock);
        if (begun)
            bit_set(shards.begun, shard, true);
        any_begun |= begun;
    }
    free(list);
    if (!any_begun)
        return;
    memset(shards.complete, 0, sizeof(shards.complete));
    memset(shards.summed, 0, sizeof(shards.summed));
    pthread_mutex_lock(&manifest->lock);
    if (shards_replace(store, &shards) == 0)
        memcpy(manifest->shards.begun, shards.begun, sizeof(shards.begun));
    pthread_mutex_unlock(&manifest->lock);
}

/* ---- completing ------------------------------------------------------------------------------------------ */

bool wb_manifest_begin_shard(struct wb_manifest *manifest, unsigned shard)
{
    bool complete;

    if (manifest->shards_damaged)
        return false;
    pthread_mutex_lock(&manifest->pending_lock);
    complete = bit_get(manifest->shards.complete, shard);
    /* An entry that is withdrawn from now on, or for which there is no room, makes the shard incomplete again. */
    bit_set(manifest->shards.complete, shard, true);
    pthread_mutex_unlock(&manifest->pending_lock);
    return !complete;
}

void wb_manifest_give_up_shard(struct wb_manifest *manifest, unsigned shard)
{
    pthread_mutex_lock(&manifest->pending_lock);
    bit_set(manifest->shards.complete, shard, false);
    pthread_mutex_unlock(&manifest->pending_lock);
}

/* ---- for vfsck --------------------------------------------------------------------------------------------- */

int wb_manifest_each(const struct wb_store *store, unsigned shard,
                     int (*take)(const struct wb_manifest_entry *entry, void *data), void *data)
{
    _cleanup_table_ struct table table = TABLE_CLOSED;
    struct wb_manifest_bucket bucket;
    int r, bad = 0;

    if (!store->header.manifest)
        return 0;
    r = table_open(&table, store->dir_fd, shard, O_RDONLY);
    if (r == -ENOENT)
        return shard_is_new(store, shard);
    for (uint32_t i = 0; r == 0 && i < UINT32_C(1) << table.bits; i++) {
        for (int tries = 0; (r = bucket_read(&table, i, &bucket)) == -EBADMSG && tries < TRIES; tries++)
            ;
        if (r == -EBADMSG) {
            bad = r;
            r = 0;
            continue;
        }
        for (unsigned j = 0; r == 0 && j < bucket.count; j++)
            r = take(&bucket.entries[j], data);
    }
    return r != 0 ? r : bad;
}

int wb_manifest_check_shards(const struct wb_store *store)
{
    struct wb_manifest_shards shards;

    return store->header.manifest ? shards_read(store->dir_fd, &shards) : 0;
}

int wb_manifest_mend_shards(struct wb_store *store)
{
    struct wb_manifest *manifest = store->manifest;
    struct wb_manifest_shards shards = {0};
    int r;

    /* The directory itself may be gone. */
    if (mkdirat(store->dir_fd, WB_MANIFEST_NAME, 0700) < 0 && errno != EEXIST)
        return -errno;
    for (unsigned shard = 0; shard < WB_SHARDS; shard++) {
        char path[TABLE_PATH_MAX];

        table_path(shard, "", path);
        bit_set(shards.begun, shard, faccessat(store->dir_fd, path, F_OK, AT_SYMLINK_NOFOLLOW) == 0);
    }
    pthread_mutex_lock(&manifest->lock);
    r = shards_replace(store, &shards);
    if (r == 0) {
        pthread_mutex_lock(&manifest->pending_lock);
        manifest->shards = shards;
        manifest->shards_damaged = false;
        pthread_mutex_unlock(&manifest->pending_lock);
    }
    pthread_mutex_unlock(&manifest->lock);
    return r;
}

int wb_manifest_rebuild(struct wb_store *store, unsigned shard)
{
    struct wb_manifest *manifest = store->manifest;
    _cleanup_table_ struct table table = TABLE_CLOSED;
    struct wb_manifest_shards shards;
    int r;

    pthread_mutex_lock(&manifest->lock);
    table_discard(store->dir_fd, shard);
    r = table_make(&table, store->dir_fd, shard, 0);
    if (r == 0)
        r = table_publish(&table, store->dir_fd);
    if (r < 0)
        table_discard(store->dir_fd, shard);
    shards = manifest->shards;
    bit_set(shards.begun, shard, true);
    memset(shards.complete, 0, sizeof(shards.complete));
    if (r == 0)
        r = shards_replace(store, &shards);
    if (r == 0) {
        pthread_mutex_lock(&manifest->pending_lock);
        bit_set(manifest->shards.begun, shard, true);
        bit_set(manifest->shards.complete, shard, false);
        bit_set(manifest->shards.summed, shard, false);
        pthread_mutex_unlock(&manifest->pending_lock);
    }
    pthread_mutex_unlock(&manifest->lock);
    return r;
}
