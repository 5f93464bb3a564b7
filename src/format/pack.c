/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "base/checksum.h"
#include "format/cursor.h"

#include <errno.h>

/* The beginning of a packed log: a head and a table of the chunks that follow. */

#define MAGIC "WBPACK1\n"
#define MAGIC_SIZE 8
#define CHECKED (WB_PACK_HEAD_SIZE - 8)

int wb_pack_is_magic(const uint8_t *data, size_t length)
{
    return length >= MAGIC_SIZE && memcmp(data, MAGIC, MAGIC_SIZE) == 0;
}

void wb_pack_encode_head(const struct wb_pack_head *head, uint8_t data[WB_PACK_HEAD_SIZE])
{
    struct wb_writer to = {.data = data, .length = WB_PACK_HEAD_SIZE};

    wb_put_bytes(&to, MAGIC, MAGIC_SIZE);
    wb_put_u32(&to, head->count);
    wb_put_u32(&to, 0);
    wb_put_u64(&to, head->unpacked);
    wb_put_u64(&to, head->packed);
    wb_put_u64(&to, head->table_check);
    wb_put_zeros(&to, 16);
    wb_put_u64(&to, wb_checksum(data, CHECKED));
}

void wb_pack_encode_end(const struct wb_pack_head *head, uint8_t data[WB_PACK_END_SIZE])
{
    struct wb_writer to = {.data = data + WB_PACK_HEAD_SIZE, .length = WB_TRAILER_SIZE};

    wb_pack_encode_head(head, data);
    wb_put_u32(&to, WB_PACK_END_SIZE);
    wb_put_u32(&to, WB_TRAILER_MAGIC);
}

static uint64_t table_end(uint32_t count)
{
    return WB_PACK_HEAD_SIZE + (uint64_t)count * WB_PACK_ENTRY_SIZE;
}

int wb_pack_decode_head(const uint8_t data[WB_PACK_HEAD_SIZE], struct wb_pack_head *ret)
{
    struct wb_reader from = {.data = data, .length = WB_PACK_HEAD_SIZE};
    uint64_t check;

    wb_get_bytes(&from, MAGIC_SIZE);
    ret->count = wb_get_u32(&from);
    wb_get_zeros(&from, 4);
    ret->unpacked = wb_get_u64(&from);
    ret->packed = wb_get_u64(&from);
    ret->table_check = wb_get_u64(&from);
    wb_get_zeros(&from, 16);
    check = wb_get_u64(&from);
    if (!wb_pack_is_magic(data, WB_PACK_HEAD_SIZE) || from.overflow || from.nonzero ||
        check != wb_checksum(data, CHECKED) || ret->count == 0 || ret->count > WB_PACK_CHUNKS_MAX ||
        ret->unpacked % 8 != 0 || ret->packed % 8 != 0 || ret->packed > INT64_MAX ||
        ret->unpacked > (uint64_t)ret->count * WB_PACK_CHUNK_MAX ||
        ret->packed < table_end(ret->count) + WB_PACK_END_SIZE)
        return -EBADMSG;
    return 0;
}

void wb_pack_encode_chunk(const struct wb_pack_chunk *chunk, uint8_t data[WB_PACK_ENTRY_SIZE])
{
    struct wb_writer to = {.data = data, .length = WB_PACK_ENTRY_SIZE};

    wb_put_u64(&to, chunk->at);
    wb_put_u32(&to, chunk->length);
    wb_put_u32(&to, chunk->stored);
    wb_put_u32(&to, chunk->method);
    wb_put_u32(&to, chunk->reference);
    wb_put_u64(&to, chunk->check);
}

/* Checks one chunk alone; its reference is checked when all are known. */
static bool chunk_valid(const struct wb_pack_head *head, const struct wb_pack_chunk *chunk)
{
    return chunk->length > 0 && chunk->length <= WB_PACK_CHUNK_MAX && chunk->stored > 0 &&
           chunk->stored <= chunk->length && chunk->at >= table_end(head->count) && chunk->at <= head->packed &&
           chunk->stored <= head->packed - chunk->at &&
           (chunk->method == WB_PACK_ZSTD ||
            ((chunk->method == WB_PACK_PLAIN || chunk->method == WB_PACK_CHECKED) && chunk->stored == chunk->length &&
             chunk->reference == 0));
}

int wb_pack_decode_table(const struct wb_pack_head *head, const uint8_t *data, struct wb_pack_chunk *chunks)
{
    struct wb_reader from = {.data = data, .length = (size_t)head->count * WB_PACK_ENTRY_SIZE};
    uint64_t unpacked = 0;

    if (wb_checksum(data, from.length) != head->table_check)
        return -EBADMSG;
    for (uint32_t i = 0; i < head->count; i++) {
        struct wb_pack_chunk *chunk = &chunks[i];

        chunk->at = wb_get_u64(&from);
        chunk->length = wb_get_u32(&from);
        chunk->stored = wb_get_u32(&from);
        chunk->method = wb_get_u32(&from);
        chunk->reference = wb_get_u32(&from);
        chunk->check = wb_get_u64(&from);
        if (!chunk_valid(head, chunk))
            return -EBADMSG;
        unpacked += chunk->length;
    }
    /* No chains: a chunk that is referred to has no reference itself. */
    for (uint32_t i = 0; i < head->count; i++)
        if (chunks[i].reference != 0 &&
            (chunks[i].reference >= head->count - i || chunks[i + chunks[i].reference].reference != 0))
            return -EBADMSG;
    return unpacked == head->unpacked ? 0 : -EBADMSG;
}
