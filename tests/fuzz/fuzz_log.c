/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * One log as a file: packed chunks in front, records behind, any of it wrong, walked in both directions. The sums of
 * the head and the table are right, so that the bytes they cover are read; chunks overlap, refer to each other, and
 * unpack to far more than they are.
 */
#include "fuzz_tree.h"

#include "base/checksum.h"
#include "store/log/log.h"
#include "wayback/dump.h"
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>
#include <zstd.h>

#define CHUNKS_MAX 6
#define STEPS_MAX 400 /* of each walk: what they read is bounded by the file, which may be one record a thousand times */

struct plan {
    struct wb_pack_chunk chunks[CHUNKS_MAX];
    GByteArray *stored; /* behind the table */
    uint64_t unpacked;
    uint32_t count;
};

/* Bytes of a chunk: records, or a run of one byte. */
static GByteArray *take_plain(struct fuzz_input *in)
{
    GByteArray *plain = g_byte_array_new();
    uint8_t how = fuzz_u8(in);

    if (how < 0xd0) {
        fuzz_tree_log(in, plain);
    } else {
        guint length = how == 0xff ? WB_PACK_CHUNK_MAX : (guint)fuzz_u16(in) * 8;

        g_byte_array_set_size(plain, length);
        if (length > 0)
            memset(plain->data, fuzz_u8(in), length);
    }
    if (plain->len == 0)
        g_byte_array_append(plain, (const uint8_t *)"12345678", 8);
    return plain;
}

static void take_chunk(struct fuzz_input *in, struct plan *plan, uint64_t begin)
{
    struct wb_pack_chunk *chunk = &plan->chunks[plan->count++];
    g_autoptr(GByteArray) plain = take_plain(in);
    g_autofree uint8_t *packed = g_malloc(ZSTD_compressBound(plain->len));
    size_t n = ZSTD_compress(packed, ZSTD_compressBound(plain->len), plain->data, plain->len, 1);
    uint8_t how = fuzz_u8(in);
    bool is_plain = how & 1 || n >= plain->len;

    *chunk = (struct wb_pack_chunk){.at = begin + plan->stored->len,
                                    .length = MIN(plain->len, WB_PACK_CHUNK_MAX),
                                    .stored = (uint32_t)(is_plain ? plain->len : n),
                                    .method = is_plain ? WB_PACK_PLAIN : WB_PACK_ZSTD,
                                    .check = wb_checksum(plain->data, plain->len)};
    g_byte_array_append(plan->stored, is_plain ? plain->data : packed, chunk->stored);
    if (how & 2)
        chunk->at = begin + fuzz_size(in) % (plan->stored->len + 1);
    if (how & 4)
        chunk->length = (uint32_t)fuzz_size(in) % (WB_PACK_CHUNK_MAX + 1);
    if (how & 8)
        chunk->reference = fuzz_u8(in) % CHUNKS_MAX;
    if (how & 16)
        plan->stored->data[fuzz_u16(in) % plan->stored->len] ^= fuzz_u8(in);
    plan->unpacked += chunk->length;
}

static void put_pack(struct fuzz_input *in, GByteArray *file)
{
    struct plan plan = {.stored = g_byte_array_new()};
    unsigned wanted = 1 + fuzz_u8(in) % CHUNKS_MAX;
    uint64_t begin = WB_PACK_HEAD_SIZE + wanted * WB_PACK_ENTRY_SIZE;
    uint8_t table[CHUNKS_MAX * WB_PACK_ENTRY_SIZE], head[WB_PACK_HEAD_SIZE], end[WB_PACK_END_SIZE];
    struct wb_pack_head pack;

    while (plan.count < wanted)
        take_chunk(in, &plan, begin);
    while (plan.stored->len % 8)
        g_byte_array_append(plan.stored, (const uint8_t *)"", 1);
    for (unsigned i = 0; i < plan.count; i++)
        wb_pack_encode_chunk(&plan.chunks[i], table + i * WB_PACK_ENTRY_SIZE);
    pack = (struct wb_pack_head){.count = plan.count, .unpacked = plan.unpacked,
                                 .packed = begin + plan.stored->len + WB_PACK_END_SIZE,
                                 .table_check = wb_checksum(table, plan.count * WB_PACK_ENTRY_SIZE)};
    if (fuzz_u8(in) >= 0xf0)
        pack.packed = fuzz_size(in);
    wb_pack_encode_head(&pack, head);
    wb_pack_encode_end(&pack, end);
    g_byte_array_append(file, head, sizeof(head));
    g_byte_array_append(file, table, plan.count * WB_PACK_ENTRY_SIZE);
    g_byte_array_append(file, plan.stored->data, plan.stored->len);
    g_byte_array_append(file, end, sizeof(end));
    g_byte_array_unref(plan.stored);
}

static void read_payload(const struct wb_log_reader *reader, const struct wb_record *record)
{
    g_autofree uint8_t *payload = g_malloc(record->payload_length + 1);

    g_assert_cmpuint(record->payload_length, <=, WB_PAYLOAD_MAX);
    wb_log_bytes_payload(&reader->bytes, record, payload);
}

static void walk(int fd)
{
    struct wb_log_skip skip = {0};
    struct wb_log_reader reader;
    struct wb_record record;
    int r = 0;

    if (wb_log_reader_init(&reader, fd) < 0)
        return;
    for (unsigned i = 0; i < STEPS_MAX && ((r = wb_log_reader_prev(&reader, &record)) == 0 || r == WB_DAMAGED); i++)
        if (r == 0)
            read_payload(&reader, &record);
    wb_log_reader_seek(&reader, 0);
    for (unsigned i = 0; i < STEPS_MAX && ((r = wb_log_reader_next(&reader, &record)) == 0 || r == WB_DAMAGED); i++)
        if (r == WB_DAMAGED)
            g_assert_cmpuint(reader.damaged_from, <, reader.damaged_to);
    wb_log_reader_deinit(&reader);
    if (wb_log_reader_init(&reader, fd) < 0)
        return;
    for (unsigned i = 0; i < STEPS_MAX; i++) {
        r = wb_log_reader_prev_effective(&reader, &skip, &record);
        if (r != 0 && r != WB_DAMAGED)
            break;
    }
    wb_log_reader_deinit(&reader);
}

static void dump(int fd)
{
    g_autofree char *path = g_strdup_printf("/proc/self/fd/%d", fd);
    FILE *nowhere = fopen("/dev/null", "w");
    struct wb_dump_count count;
    struct wb_error why;

    wb_dump_log(path, nowhere, 0, &count, &why);
    fclose(nowhere);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct fuzz_input in = {data, size};
    g_autoptr(GByteArray) file = g_byte_array_new();
    uint8_t how = fuzz_u8(&in);
    int fd = memfd_create("log", MFD_CLOEXEC);

    if (how & 1)
        put_pack(&in, file);
    if (how & 2)
        fuzz_tree_log(&in, file);
    if (how & 4)
        g_byte_array_append(file, in.data, (guint)in.left);
    if (how & 8 && file->len)
        file->data[fuzz_u16(&in) % file->len] ^= fuzz_u8(&in);
    if (fd < 0 || write(fd, file->data, file->len) != (ssize_t)file->len)
        abort();
    walk(fd);
    dump(fd);
    close(fd);
    return 0;
}
