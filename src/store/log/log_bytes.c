/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "store/log/log_bytes.h"

#include "base/checksum.h"
#include "base/io.h"
#include <endian.h>
#include <errno.h>
#include <glib.h>
#include <pthread.h>
#include <stdbool.h>
#include <string.h>
#include <sys/stat.h>

/*
 * The second head of a pack, at its end: for a log whose first bytes are neither a record nor a head that verifies.
 * Slow if the damage left no hint of its place; nothing here runs while a log is sound.
 *
 * Payloads are users' bytes and may contain a copy of a pack that does not belong to this log: a head counts only if it
 * says that the pack ends with it, and if it matches the table at the beginning of this file.
 */

#define CHUNK (64u * 1024)
#define PACKED_AT 24 /* in a head: where its pack ends */

/* Whether the table in front of the file is the one that this head describes: 0, -EBADMSG or -errno. */
static int check_table(int fd, const struct wb_pack_head *head)
{
    size_t length = (size_t)head->count * WB_PACK_ENTRY_SIZE;
    g_autofree uint8_t *data = g_try_malloc(length);
    g_autofree struct wb_pack_chunk *chunks = g_try_new(struct wb_pack_chunk, head->count);
    int r;

    if (!data || !chunks)
        return -ENOMEM;
    r = wb_pread_exact(fd, data, length, WB_PACK_HEAD_SIZE);
    if (r == 0)
        r = wb_pack_decode_table(head, data, chunks);
    return r == -ENODATA ? -EBADMSG : r;
}

/* The head at `offset` of the file: 0, -EBADMSG or -errno. */
static int try_at(int fd, uint64_t offset, struct wb_pack_head *ret)
{
    uint8_t data[WB_PACK_END_SIZE];
    uint32_t total;
    int r;

    r = wb_pread_exact(fd, data, sizeof(data), offset);
    if (r == 0)
        r = wb_pack_decode_head(data, ret);
    if (r == 0)
        r = wb_record_measure_end(data + WB_PACK_HEAD_SIZE, &total);
    if (r < 0)
        return r == -ENODATA ? -EBADMSG : r;
    if (total != sizeof(data) || ret->packed != offset + sizeof(data))
        return -EBADMSG;
    return check_table(fd, ret);
}

static int search(int fd, struct wb_pack_head *ret)
{
    g_autofree uint8_t *chunk = g_try_malloc(CHUNK);
    size_t length;
    int r;

    if (!chunk)
        return -ENOMEM;
    for (uint64_t begin = 0;; begin += CHUNK) {
        r = wb_pread_full(fd, chunk, CHUNK, begin, &length);
        if (r < 0)
            return r;
        for (size_t at = 0; at + 8 <= length; at += 8) {
            if (!wb_pack_is_magic(chunk + at, 8))
                continue;
            r = try_at(fd, begin + at, ret);
            if (r != -EBADMSG)
                return r;
        }
        if (length < CHUNK)
            return -EBADMSG;
    }
}

/* ---- what was found lately --------------------------------------------------------------------- */

/*
 * A reader of a log opens it many times; without this, each time would cost a search. A pack is never written into
 * a file that exists already.
 */
#define KEPT 16

static struct {
    pthread_mutex_t lock;
    unsigned next;
    struct {
        uint64_t key;
        uint64_t at; /* 0: there is none */
    } kept[KEPT];
} cache = {.lock = PTHREAD_MUTEX_INITIALIZER};

static int key_of(int fd, const uint8_t first[WB_PACK_HEAD_SIZE], uint64_t *ret)
{
    struct {
        uint64_t dev, ino;
        uint8_t first[WB_PACK_HEAD_SIZE];
    } key;
    struct stat st;

    if (fstat(fd, &st) < 0)
        return -errno;
    key.dev = st.st_dev;
    key.ino = st.st_ino;
    memcpy(key.first, first, sizeof(key.first));
    *ret = wb_checksum(&key, sizeof(key));
    return 0;
}

static bool recall(uint64_t key, uint64_t *ret)
{
    bool found = false;

    pthread_mutex_lock(&cache.lock);
    for (unsigned i = 0; i < KEPT && !found; i++) {
        found = cache.kept[i].key == key;
        *ret = cache.kept[i].at;
    }
    pthread_mutex_unlock(&cache.lock);
    return found;
}

static void keep(uint64_t key, uint64_t at)
{
    pthread_mutex_lock(&cache.lock);
    cache.kept[cache.next].key = key;
    cache.kept[cache.next].at = at;
    cache.next = (cache.next + 1) % KEPT;
    pthread_mutex_unlock(&cache.lock);
}

/* For a file that begins with neither a record nor a head of a pack: 0, -EBADMSG where there is none, or -errno. */
static int log_second_head(int fd, const uint8_t first[WB_PACK_HEAD_SIZE], struct wb_pack_head *ret)
{
    uint64_t packed, key = 0, at;
    int r = key_of(fd, first, &key);

    if (r < 0)
        return r;
    if (recall(key, &at))
        return at == 0 ? -EBADMSG : try_at(fd, at, ret);
    /* As a rule the field that states the place is not the damaged one. */
    memcpy(&packed, first + PACKED_AT, sizeof(packed));
    packed = le64toh(packed);
    r = -EBADMSG;
    if (packed >= WB_PACK_HEAD_SIZE + WB_PACK_END_SIZE && packed <= INT64_MAX)
        r = try_at(fd, packed - WB_PACK_END_SIZE, ret);
    if (r == -EBADMSG)
        r = search(fd, ret);
    if (r == 0 || r == -EBADMSG)
        keep(key, r == 0 ? ret->packed - WB_PACK_END_SIZE : 0);
    return r;
}

/* Of a damaged chunk: no magic of any kind, and not zeros, which would look like bytes never written. */
#define FILLER 0xa5

int wb_log_bytes_open(struct wb_log_bytes *bytes, int fd)
{
    uint8_t data[WB_PACK_HEAD_SIZE];
    struct wb_pack_head head;
    size_t length;
    int r;

    *bytes = (struct wb_log_bytes){.fd = fd};
    r = wb_pread_full(fd, data, sizeof(data), 0, &length);
    if (r < 0)
        return r;
    /* As a rule a log is not packed, and begins with a record. */
    if (length < sizeof(data) || wb_record_is_magic(data))
        return 0;
    if (wb_pack_decode_head(data, &head) < 0) {
        r = log_second_head(fd, data, &head);
        if (r < 0)
            return r == -EBADMSG ? 0 : r;
        bytes->second = true;
    }
    return wb_log_map_get(fd, &head, &bytes->map);
}

void wb_log_bytes_close(struct wb_log_bytes *bytes)
{
    wb_log_map_unref(bytes->map);
    bytes->map = NULL;
}

uint64_t wb_log_bytes_unpacked(const struct wb_log_bytes *bytes)
{
    return bytes->map ? bytes->map->head.unpacked : 0;
}

uint64_t wb_log_bytes_packed(const struct wb_log_bytes *bytes)
{
    return bytes->map ? bytes->map->head.packed : 0;
}

int wb_log_bytes_size(const struct wb_log_bytes *bytes, uint64_t *ret)
{
    uint64_t packed = wb_log_bytes_packed(bytes);
    struct stat st;

    if (fstat(bytes->fd, &st) < 0)
        return -errno;
    *ret = wb_log_bytes_unpacked(bytes) + ((uint64_t)st.st_size > packed ? (uint64_t)st.st_size - packed : 0);
    return 0;
}

/* The chunk that holds `offset`. */
static uint32_t find_chunk(const struct wb_log_map *map, uint64_t offset)
{
    uint32_t low = 0, high = map->head.count;

    while (high - low > 1) {
        uint32_t middle = low + (high - low) / 2;

        if (map->begins[middle] <= offset)
            low = middle;
        else
            high = middle;
    }
    return low;
}

/* From one chunk at most; *ret: how much. */
static int read_packed(const struct wb_log_bytes *bytes, void *data, size_t length, uint64_t offset, size_t *ret)
{
    struct wb_log_map *map = bytes->map;
    uint32_t index;
    size_t within;

    *ret = MIN(length, map->head.unpacked - offset);
    if (map->error < 0)
        return map->error;
    index = find_chunk(map, offset);
    within = offset - map->begins[index];
    *ret = MIN(length, map->chunks[index].length - within);
    return wb_log_chunk_read(map, bytes->fd, index, data, *ret, within);
}

static int read_all(const struct wb_log_bytes *bytes, void *data, size_t length, uint64_t offset, bool fill,
                    size_t *ret)
{
    uint64_t unpacked = wb_log_bytes_unpacked(bytes);
    uint8_t *to = data;
    size_t done = 0, step;
    int r;

    while (done < length && offset + done < unpacked) {
        r = read_packed(bytes, to + done, length - done, offset + done, &step);
        if (r == -EBADMSG && fill)
            memset(to + done, FILLER, step);
        else if (r < 0)
            return r;
        done += step;
    }
    *ret = done;
    if (done == length)
        return 0;
    r = wb_pread_full(bytes->fd, to + done, length - done, offset + done - unpacked + wb_log_bytes_packed(bytes),
                      &step);
    if (r == 0)
        *ret = done + step;
    return r;
}

int wb_log_bytes_read(const struct wb_log_bytes *bytes, void *data, size_t length, uint64_t offset, size_t *ret)
{
    return read_all(bytes, data, length, offset, false, ret);
}

int wb_log_bytes_scan(const struct wb_log_bytes *bytes, void *data, size_t length, uint64_t offset, size_t *ret)
{
    return read_all(bytes, data, length, offset, true, ret);
}

int wb_log_bytes_exact(const struct wb_log_bytes *bytes, void *data, size_t length, uint64_t offset)
{
    size_t done;
    int r = read_all(bytes, data, length, offset, false, &done);

    if (r < 0)
        return r;
    return done == length ? 0 : -ENODATA;
}

int wb_log_pread_exact(int fd, void *data, size_t length, uint64_t offset)
{
    struct wb_log_bytes bytes;
    int r = wb_log_bytes_open(&bytes, fd);

    if (r == 0)
        r = wb_log_bytes_exact(&bytes, data, length, offset);
    wb_log_bytes_close(&bytes);
    return r;
}

int wb_log_size(int fd, uint64_t *ret)
{
    struct wb_log_bytes bytes;
    int r = wb_log_bytes_open(&bytes, fd);

    if (r == 0)
        r = wb_log_bytes_size(&bytes, ret);
    wb_log_bytes_close(&bytes);
    return r;
}
