/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* The manifest: the list of logs that must exist. */
#include "base/checksum.h"
#include "format/cursor.h"
#include "format/format.h"

#include <errno.h>

#define HEAD_MAGIC "WBMANIF\n"
#define SHARDS_MAGIC "WBSHARDS"
#define MAGIC_SIZE 8
#define BUCKET_MAGIC 0x4d42u /* "BM" */
#define BUCKET_OVERFLOWED 1u
#define CHECKED (WB_MANIFEST_SECTOR - 8)
#define SHARDS_CHECKED (WB_MANIFEST_SHARDS_SIZE - 8)

/* .undo, .cat, .data */
static const enum wb_object_file kinds[] = {WB_FILE_UNDO, WB_FILE_CATALOG, WB_FILE_DATA};
#define KINDS (sizeof(kinds) / sizeof(kinds[0]))

static uint32_t kind_of(enum wb_object_file file)
{
    uint32_t kind = 0;

    while (kind + 1 < KINDS && kinds[kind] != file)
        kind++;
    return kind;
}

static void put_check(uint8_t *data, size_t checked)
{
    struct wb_writer to = {.data = data + checked, .length = sizeof(uint64_t)};

    wb_put_u64(&to, wb_checksum(data, checked));
}

static bool is_checked(const uint8_t *data, size_t checked)
{
    struct wb_reader from = {.data = data + checked, .length = sizeof(uint64_t)};

    return wb_get_u64(&from) == wb_checksum(data, checked);
}

void wb_manifest_head_encode(unsigned shard, unsigned bits, uint8_t data[WB_MANIFEST_SECTOR])
{
    struct wb_writer to = {.data = data, .length = CHECKED};

    memset(data, 0, WB_MANIFEST_SECTOR);
    wb_put_bytes(&to, HEAD_MAGIC, MAGIC_SIZE);
    wb_put_u32(&to, shard);
    wb_put_u32(&to, bits);
    put_check(data, CHECKED);
}

int wb_manifest_head_decode(const uint8_t data[WB_MANIFEST_SECTOR], unsigned shard, unsigned *ret_bits)
{
    struct wb_reader from = {.data = data, .length = CHECKED};

    if (memcmp(wb_get_bytes(&from, MAGIC_SIZE), HEAD_MAGIC, MAGIC_SIZE) != 0 || wb_get_u32(&from) != shard ||
        !is_checked(data, CHECKED))
        return -EBADMSG;
    *ret_bits = wb_get_u32(&from);
    return *ret_bits > WB_MANIFEST_BITS_MAX ? -EBADMSG : 0;
}

void wb_manifest_bucket_encode(const struct wb_manifest_bucket *bucket, uint32_t number,
                               uint8_t data[WB_MANIFEST_SECTOR])
{
    struct wb_writer to = {.data = data, .length = CHECKED};

    memset(data, 0, WB_MANIFEST_SECTOR);
    wb_put_u16(&to, BUCKET_MAGIC);
    wb_put_u8(&to, (uint8_t)bucket->count);
    wb_put_u8(&to, bucket->overflowed ? BUCKET_OVERFLOWED : 0);
    wb_put_u32(&to, number);
    for (unsigned i = 0; i < bucket->count; i++) {
        const struct wb_manifest_entry *entry = &bucket->entries[i];

        wb_put_object(&to, entry->object);
        wb_put_u32(&to, kind_of(entry->file));
        wb_put_u32(&to, entry->block);
        wb_put_u64(&to, entry->end);
        wb_put_u64(&to, entry->file == WB_FILE_DATA ? entry->check : (uint64_t)entry->when);
    }
    put_check(data, CHECKED);
}

int wb_manifest_bucket_decode(const uint8_t data[WB_MANIFEST_SECTOR], uint32_t number,
                              struct wb_manifest_bucket *ret)
{
    struct wb_reader from = {.data = data, .length = CHECKED};
    unsigned flags;

    if (!is_checked(data, CHECKED) || wb_get_u16(&from) != BUCKET_MAGIC)
        return -EBADMSG;
    ret->count = wb_get_u8(&from);
    flags = wb_get_u8(&from);
    ret->overflowed = flags & BUCKET_OVERFLOWED;
    if (wb_get_u32(&from) != number || ret->count > WB_MANIFEST_BUCKET || flags > BUCKET_OVERFLOWED)
        return -EBADMSG;
    for (unsigned i = 0; i < ret->count; i++) {
        struct wb_manifest_entry *entry = &ret->entries[i];
        struct wb_object object = wb_get_object(&from);
        uint32_t kind = wb_get_u32(&from);
        uint64_t last;

        if (kind >= KINDS)
            return -EBADMSG;
        *entry = (struct wb_manifest_entry){.object = object, .file = kinds[kind]};
        entry->block = wb_get_u32(&from);
        entry->end = wb_get_u64(&from);
        last = wb_get_u64(&from);
        if (entry->file == WB_FILE_DATA)
            entry->check = last;
        else if (entry->block == 0)
            entry->when = (int64_t)last;
        else
            return -EBADMSG;
    }
    return 0;
}

uint32_t wb_manifest_hash(struct wb_object object, enum wb_object_file file, uint32_t block, unsigned bits)
{
    uint8_t data[24];
    struct wb_writer to = {.data = data, .length = sizeof(data)};

    wb_put_object(&to, object);
    wb_put_u32(&to, kind_of(file));
    wb_put_u32(&to, block);
    return (uint32_t)(wb_checksum(data, sizeof(data)) & ((UINT64_C(1) << bits) - 1));
}

void wb_manifest_shards_encode(const struct wb_manifest_shards *shards, uint8_t data[WB_MANIFEST_SHARDS_SIZE])
{
    struct wb_writer to = {.data = data, .length = SHARDS_CHECKED};

    wb_put_bytes(&to, SHARDS_MAGIC, MAGIC_SIZE);
    wb_put_zeros(&to, 8);
    wb_put_bytes(&to, shards->begun, sizeof(shards->begun));
    wb_put_bytes(&to, shards->complete, sizeof(shards->complete));
    wb_put_bytes(&to, shards->summed, sizeof(shards->summed));
    put_check(data, SHARDS_CHECKED);
}

int wb_manifest_shards_decode(const uint8_t *data, size_t length, struct wb_manifest_shards *ret)
{
    struct wb_reader from = {.data = data, .length = length};
    const void *bytes;

    if (length != WB_MANIFEST_SHARDS_SIZE || !is_checked(data, SHARDS_CHECKED))
        return -EBADMSG;
    bytes = wb_get_bytes(&from, MAGIC_SIZE);
    if (!bytes || memcmp(bytes, SHARDS_MAGIC, MAGIC_SIZE) != 0)
        return -EBADMSG;
    (void)wb_get_bytes(&from, 8);
    memcpy(ret->begun, wb_get_bytes(&from, sizeof(ret->begun)), sizeof(ret->begun));
    memcpy(ret->complete, wb_get_bytes(&from, sizeof(ret->complete)), sizeof(ret->complete));
    memcpy(ret->summed, wb_get_bytes(&from, sizeof(ret->summed)), sizeof(ret->summed));
    return 0;
}
