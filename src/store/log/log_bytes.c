/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "store/log/log_bytes.h"

#include "base/io.h"
#include <errno.h>
#include <glib.h>
#include <stdbool.h>
#include <string.h>
#include <sys/stat.h>

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
        r = wb_log_second_head(fd, data, &head);
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
