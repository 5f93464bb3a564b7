/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Cache of unpacked chunks of packed logs, and of the tables that state where they are: those used last are kept,
 * a fixed number of them for the whole process. They are identified by their checksums, not by their files, so the
 * replacement of a log leaves no wrong entry behind.
 */
#include "store/log/log_bytes.h"

#include "base/checksum.h"
#include "base/io.h"
#include <errno.h>
#include <glib.h>
#include <pthread.h>
#include <string.h>
#include <zstd.h>

#define MAPS 16
#define CHUNKS 12 /* of 1 MiB at most */

struct chunk {
    int refs;
    uint64_t pack; /* wb_log_map.check */
    uint32_t index;
    uint32_t length;
    uint64_t used;
    uint8_t data[];
};

static struct {
    pthread_mutex_t lock;
    uint64_t clock;
    struct wb_log_map *maps[MAPS];
    struct chunk *chunks[CHUNKS];
    unsigned next_map;
} cache = {.lock = PTHREAD_MUTEX_INITIALIZER};

/* ---- maps -------------------------------------------------------------------------------------- */

void wb_log_map_unref(struct wb_log_map *map)
{
    if (!map || !g_atomic_int_dec_and_test(&map->refs))
        return;
    g_free(map->chunks);
    g_free(map->begins);
    g_free(map);
}

static struct wb_log_map *map_ref(struct wb_log_map *map)
{
    g_atomic_int_inc(&map->refs);
    return map;
}

static struct wb_log_map *find_map(uint64_t check)
{
    struct wb_log_map *found = NULL;

    pthread_mutex_lock(&cache.lock);
    for (unsigned i = 0; i < MAPS && !found; i++)
        if (cache.maps[i] && cache.maps[i]->check == check)
            found = map_ref(cache.maps[i]);
    pthread_mutex_unlock(&cache.lock);
    return found;
}

static void keep_map(struct wb_log_map *map)
{
    struct wb_log_map *old;

    pthread_mutex_lock(&cache.lock);
    old = cache.maps[cache.next_map];
    cache.maps[cache.next_map] = map_ref(map);
    cache.next_map = (cache.next_map + 1) % MAPS;
    pthread_mutex_unlock(&cache.lock);
    wb_log_map_unref(old);
}

/* The table: 0, -EBADMSG where it is damaged, or -errno. */
static int read_table(int fd, struct wb_log_map *map)
{
    size_t length = (size_t)map->head.count * WB_PACK_ENTRY_SIZE;
    g_autofree uint8_t *data = g_try_malloc(length);
    uint64_t offset = 0;
    int r;

    map->chunks = g_try_new(struct wb_pack_chunk, map->head.count);
    map->begins = g_try_new(uint64_t, map->head.count);
    if (!data || !map->chunks || !map->begins)
        return -ENOMEM;
    r = wb_pread_exact(fd, data, length, WB_PACK_HEAD_SIZE);
    if (r == 0)
        r = wb_pack_decode_table(&map->head, data, map->chunks);
    if (r < 0)
        return r == -ENODATA ? -EBADMSG : r;
    for (uint32_t i = 0; i < map->head.count; i++) {
        map->begins[i] = offset;
        offset += map->chunks[i].length;
    }
    return 0;
}

int wb_log_map_get(int fd, const struct wb_pack_head *head, struct wb_log_map **ret)
{
    /* The table's checksum covers those of all bytes: the same sums are the same pack. */
    uint64_t sums[] = {head->count, head->unpacked, head->packed, head->table_check};
    uint64_t check = wb_checksum(sums, sizeof(sums));
    struct wb_log_map *map = find_map(check);
    int r;

    *ret = map;
    if (map)
        return 0;
    map = g_try_new0(struct wb_log_map, 1);
    if (!map)
        return -ENOMEM;
    map->refs = 1;
    map->check = check;
    map->head = *head;
    r = read_table(fd, map);
    if (r < 0 && r != -EBADMSG) {
        wb_log_map_unref(map);
        return r;
    }
    map->error = r;
    if (r == 0)
        keep_map(map);
    *ret = map;
    return 0;
}

/* ---- chunks ------------------------------------------------------------------------------------- */

static void chunk_unref(struct chunk *chunk)
{
    if (chunk && g_atomic_int_dec_and_test(&chunk->refs))
        g_free(chunk);
}

static struct chunk *find_chunk(const struct wb_log_map *map, uint32_t index)
{
    struct chunk *found = NULL;

    pthread_mutex_lock(&cache.lock);
    for (unsigned i = 0; i < CHUNKS && !found; i++) {
        if (cache.chunks[i] && cache.chunks[i]->pack == map->check && cache.chunks[i]->index == index) {
            found = cache.chunks[i];
            found->used = ++cache.clock;
            g_atomic_int_inc(&found->refs);
        }
    }
    pthread_mutex_unlock(&cache.lock);
    return found;
}

/* In the place of the one used least lately. */
static void keep_chunk(struct chunk *chunk)
{
    struct chunk *old;
    unsigned place = 0;

    pthread_mutex_lock(&cache.lock);
    for (unsigned i = 0; i < CHUNKS; i++) {
        if (!cache.chunks[i]) {
            place = i;
            break;
        }
        if (cache.chunks[i]->used < cache.chunks[place]->used)
            place = i;
    }
    old = cache.chunks[place];
    chunk->used = ++cache.clock;
    g_atomic_int_inc(&chunk->refs);
    cache.chunks[place] = chunk;
    pthread_mutex_unlock(&cache.lock);
    chunk_unref(old);
}

void wb_log_chunks_forget(void)
{
    pthread_mutex_lock(&cache.lock);
    for (unsigned i = 0; i < CHUNKS; i++) {
        chunk_unref(cache.chunks[i]);
        cache.chunks[i] = NULL;
    }
    pthread_mutex_unlock(&cache.lock);
}

/* The packed bytes unpacked into `chunk`: 0, -EBADMSG or -errno. */
static int unpack(const struct wb_pack_chunk *entry, int fd, const struct chunk *prefix, struct chunk *chunk)
{
    g_autofree uint8_t *stored = g_try_malloc(entry->stored);
    ZSTD_DCtx *context;
    size_t length;
    int r;

    if (!stored)
        return -ENOMEM;
    r = wb_pread_exact(fd, stored, entry->stored, entry->at);
    if (r < 0)
        return r == -ENODATA ? -EBADMSG : r;
    context = ZSTD_createDCtx();
    if (!context)
        return -ENOMEM;
    if (prefix)
        ZSTD_DCtx_refPrefix(context, prefix->data, prefix->length);
    length = ZSTD_decompressDCtx(context, chunk->data, entry->length, stored, entry->stored);
    ZSTD_freeDCtx(context);
    /* An error is a number beyond all lengths. */
    if (length != entry->length || wb_checksum(chunk->data, length) != entry->check)
        return -EBADMSG;
    return 0;
}

static int get_chunk(struct wb_log_map *map, int fd, uint32_t index, struct chunk **ret)
{
    const struct wb_pack_chunk *entry = &map->chunks[index];
    struct chunk *prefix = NULL, *chunk = find_chunk(map, index);
    int r = 0;

    *ret = chunk;
    if (chunk)
        return 0;
    /* One step at most: a chunk that is referred to has no reference itself. */
    if (entry->reference != 0)
        r = get_chunk(map, fd, index + entry->reference, &prefix);
    if (r < 0)
        return r;
    chunk = g_try_malloc(sizeof(*chunk) + entry->length);
    r = chunk ? 0 : -ENOMEM;
    if (r == 0) {
        *chunk = (struct chunk){.refs = 1, .pack = map->check, .index = index, .length = entry->length};
        if (entry->method == WB_PACK_ZSTD)
            r = unpack(entry, fd, prefix, chunk);
        else
            r = wb_pread_exact(fd, chunk->data, entry->length, entry->at);
        if (r == 0 && entry->method == WB_PACK_CHECKED && wb_checksum(chunk->data, entry->length) != entry->check)
            r = -EBADMSG;
    }
    chunk_unref(prefix);
    if (r < 0) {
        g_free(chunk);
        return r == -ENODATA ? -EBADMSG : r;
    }
    keep_chunk(chunk);
    *ret = chunk;
    return 0;
}

int wb_log_chunk_read(struct wb_log_map *map, int fd, uint32_t index, void *data, size_t length, size_t within)
{
    const struct wb_pack_chunk *entry = &map->chunks[index];
    struct chunk *chunk;
    int r;

    /* Records verify themselves: an uncompressed chunk is read as if it were not packed. */
    if (entry->method == WB_PACK_PLAIN) {
        r = wb_pread_exact(fd, data, length, entry->at + within);
        return r == -ENODATA ? -EBADMSG : r;
    }
    r = get_chunk(map, fd, index, &chunk);
    if (r < 0)
        return r;
    memcpy(data, chunk->data + within, length);
    chunk_unref(chunk);
    return 0;
}
