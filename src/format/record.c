/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "base/checksum.h"
#include "format/bodies.h"
#include "format/cursor.h"
#include "format/format.h"

#include <errno.h>

/*
 * The frame of a record: head, body, payload, padding, trailer. The head gives all lengths; the trailer repeats the
 * total, so that a log can be read backward.
 */

#define CHECKED_SIZE (WB_HEAD_SIZE - 8) /* the head up to its own checksum */
#define RECORD_MIN (WB_HEAD_SIZE + WB_TRAILER_SIZE)

static uint32_t record_total(uint32_t body_length, uint32_t payload_length)
{
    return ((WB_HEAD_SIZE + body_length + payload_length + 7) & ~7u) + WB_TRAILER_SIZE;
}

/* The checksum's own field lies between the two parts that it covers, so they are joined first. */
static uint64_t head_check(const uint8_t *data, uint32_t body_length)
{
    uint8_t joined[CHECKED_SIZE + WB_BODY_MAX];

    memcpy(joined, data, CHECKED_SIZE);
    memcpy(joined + CHECKED_SIZE, data + WB_HEAD_SIZE, body_length);
    return wb_checksum(joined, CHECKED_SIZE + body_length);
}

static bool when_valid(int64_t when)
{
    return when >= 0 && when < INT64_MAX;
}

int wb_record_encode(struct wb_record *record, uint8_t *data)
{
    const struct wb_body_codec *codec = wb_body_codec(record->type);
    struct wb_writer head = {.data = data, .length = WB_HEAD_SIZE};
    struct wb_writer body = {.data = data + WB_HEAD_SIZE, .length = WB_BODY_MAX};

    if (!codec || !when_valid(record->when))
        return -EINVAL;
    if (record->payload_length > WB_PAYLOAD_MAX)
        return -EMSGSIZE;
    if (record->payload_length == 0)
        record->payload_check = 0;
    if (!codec->valid(record))
        return -EINVAL;

    codec->put(&body, record);
    if (body.overflow)
        return -EMSGSIZE;
    record->body_length = (uint32_t)body.position;
    record->total = record_total(record->body_length, record->payload_length);

    wb_put_u32(&head, WB_RECORD_MAGIC);
    wb_put_u8(&head, record->type);
    wb_put_u8(&head, record->flags);
    wb_put_u16(&head, record->op);
    wb_put_i64(&head, record->when);
    wb_put_u32(&head, record->actor);
    wb_put_u32(&head, record->body_length);
    wb_put_u32(&head, record->payload_length);
    wb_put_u32(&head, 0);
    wb_put_u64(&head, record->payload_check);
    wb_put_u64(&head, head_check(data, record->body_length));
    return (int)(WB_HEAD_SIZE + record->body_length);
}

int wb_record_encode_end(const struct wb_record *record, uint8_t data[16])
{
    struct wb_writer to = {.data = data, .length = 16};

    wb_put_zeros(&to, -(size_t)(WB_HEAD_SIZE + record->body_length + record->payload_length) & 7);
    wb_put_u32(&to, record_total(record->body_length, record->payload_length));
    wb_put_u32(&to, WB_TRAILER_MAGIC);
    return (int)to.position;
}

/* Decodes a head and checks everything in it except the checksum. */
static int get_head(struct wb_reader *from, struct wb_record *record, uint64_t *check)
{
    uint32_t magic = wb_get_u32(from);

    record->type = wb_get_u8(from);
    record->flags = wb_get_u8(from);
    record->op = wb_get_u16(from);
    record->when = record->written = record->change = wb_get_i64(from);
    record->actor = wb_get_u32(from);
    record->body_length = wb_get_u32(from);
    record->payload_length = wb_get_u32(from);
    wb_get_zeros(from, 4);
    record->payload_check = wb_get_u64(from);
    *check = wb_get_u64(from);

    if (from->overflow || from->nonzero || magic != WB_RECORD_MAGIC || record->type == 0 ||
        record->body_length > WB_BODY_MAX || record->payload_length > WB_PAYLOAD_MAX ||
        !when_valid(record->when) || (record->payload_length == 0 && record->payload_check != 0))
        return -EBADMSG;
    record->total = record_total(record->body_length, record->payload_length);
    return 0;
}

int wb_record_measure(const uint8_t *data, uint32_t *body_length, uint32_t *total)
{
    struct wb_reader from = {.data = data, .length = WB_HEAD_SIZE};
    struct wb_record head;
    uint64_t check;

    if (get_head(&from, &head, &check) < 0)
        return -EBADMSG;
    *body_length = head.body_length;
    *total = head.total;
    return 0;
}

int wb_record_is_magic(const uint8_t *data)
{
    struct wb_reader from = {.data = data, .length = 4};

    return wb_get_u32(&from) == WB_RECORD_MAGIC;
}

int wb_record_measure_end(const uint8_t data[WB_TRAILER_SIZE], uint32_t *total)
{
    struct wb_reader from = {.data = data, .length = WB_TRAILER_SIZE};
    uint32_t length = wb_get_u32(&from);

    if (wb_get_u32(&from) != WB_TRAILER_MAGIC || length < RECORD_MIN || length % 8 != 0 ||
        length > record_total(WB_BODY_MAX, WB_PAYLOAD_MAX))
        return -EBADMSG;
    *total = length;
    return 0;
}

int wb_record_decode(const uint8_t *data, size_t length, uint64_t offset, struct wb_record *ret)
{
    struct wb_reader from = {.data = data, .length = length < WB_HEAD_SIZE ? length : WB_HEAD_SIZE};
    const struct wb_body_codec *codec;
    uint64_t check;

    /* The extents are the largest part of a record, and the code below sets as many as `count`: clearing them all would
     * take half of the time to decode a hundred thousand records. */
    memset(ret, 0, offsetof(struct wb_record, data.extents));
    if (get_head(&from, ret, &check) < 0)
        return -EBADMSG;
    if (ret->type != WB_REC_DATA)
        memset(ret->data.extents, 0, sizeof(ret->data.extents));
    if (length - WB_HEAD_SIZE < ret->body_length || check != head_check(data, ret->body_length))
        return -EBADMSG;
    ret->offset = offset;
    ret->payload_offset = offset + WB_HEAD_SIZE + ret->body_length;

    /* A reader that does not know the type of a later version gets the head only. */
    codec = wb_body_codec(ret->type);
    if (!codec)
        return 0;
    from = (struct wb_reader){.data = data + WB_HEAD_SIZE, .length = ret->body_length};
    codec->get(&from, ret);
    return wb_reader_complete(&from) && codec->valid(ret) ? 0 : -EBADMSG;
}

size_t wb_record_copy(const uint8_t *data, uint32_t body_length, uint8_t *copy)
{
    size_t length = WB_HEAD_SIZE + (size_t)body_length, size = WB_COPY_SIZE(body_length);

    memset(copy, 0, sizeof(uint32_t));
    memcpy(copy + sizeof(uint32_t), data + sizeof(uint32_t), length - sizeof(uint32_t));
    memset(copy + length, 0, size - length);
    return size;
}

int wb_record_uncopy(uint8_t *copy, size_t length, uint32_t *body_length, uint32_t *total)
{
    struct wb_writer to = {.data = copy, .length = length};
    struct wb_reader from = {.data = copy, .length = length};

    if (length < WB_HEAD_SIZE || wb_get_u32(&from) != 0)
        return -EBADMSG;
    wb_put_u32(&to, WB_RECORD_MAGIC);
    if (wb_record_measure(copy, body_length, total) < 0 || WB_COPY_SIZE(*body_length) > length)
        return -EBADMSG;
    return 0;
}
