/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * The second head of a pack, at its end: for a log whose first bytes are neither a record nor a head that verifies.
 * Slow, where damage left nothing to tell its place; nothing here runs while a log is sound.
 *
 * Payloads are users' bytes and may hold a copy of a pack, which is none of this log: a head counts only where it says
 * that the pack ends with it, and where it knows the table that this file begins with.
 */
#include "store/log/log_bytes.h"

#include "base/checksum.h"
#include "base/io.h"
#include <endian.h>
#include <errno.h>
#include <glib.h>
#include <pthread.h>
#include <string.h>
#include <sys/stat.h>

#define CHUNK (64u * 1024)
#define PACKED_AT 24 /* in a head: where its pack ends */

/* Whether the table in front of the file is the one this head tells of: 0, -EBADMSG or -errno. */
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
 * Who reads a log opens it many times; without this, each time would cost a search. A pack never gets into a file
 * that is there already.
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

int wb_log_second_head(int fd, const uint8_t first[WB_PACK_HEAD_SIZE], struct wb_pack_head *ret)
{
    uint64_t packed, key = 0, at;
    int r = key_of(fd, first, &key);

    if (r < 0)
        return r;
    if (recall(key, &at))
        return at == 0 ? -EBADMSG : try_at(fd, at, ret);
    /* As a rule the field that tells the place is not the one that is damaged. */
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
