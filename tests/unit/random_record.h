/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

/*
 * Valid records with random fields, the same ones for the same seed everywhere.
 */

#include "format/format.h"
#include <sys/stat.h>
#include <string.h>

static uint64_t random_state;

static inline void random_record_seed(uint64_t seed)
{
    random_state = seed * UINT64_C(0x9e3779b97f4a7c15) + 1;
}

/* splitmix64 */
static inline uint64_t random_u64(void)
{
    uint64_t z = random_state += UINT64_C(0x9e3779b97f4a7c15);

    z = (z ^ z >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ z >> 27) * UINT64_C(0x94d049bb133111eb);
    return z ^ z >> 31;
}

static inline uint64_t random_below(uint64_t n)
{
    return random_u64() % n;
}

/* A record and the strings it points to. */
struct random_record {
    struct wb_record record;
    char names[6][WB_NAME_MAX];
    char command[WB_COMMAND_MAX];
    char path[WB_SNAPSHOT_PATH_MAX];
};

static inline uint8_t random_name(char name[WB_NAME_MAX], int mark)
{
    uint8_t length = (uint8_t)(1 + random_below(WB_NAME_MAX));

    for (int i = 0; i < length; i++) {
        do
            name[i] = (char)random_below(256);
        while (name[i] == '\0' || name[i] == '/' || name[i] == '.');
    }
    name[0] = (char)('A' + mark); /* makes the names of one record differ */
    return length;
}

static inline struct wb_object random_object(void)
{
    return (struct wb_object){.ino = random_u64() | 1, .birth = (int64_t)random_u64()};
}

static inline struct wb_attrs random_attrs(void)
{
    struct wb_attrs attrs = {
        .mode = (uint32_t)random_u64(), .uid = (uint32_t)random_u64(), .gid = (uint32_t)random_u64(),
        .nlink = (uint32_t)random_u64(), .size = random_u64() >> 1,
        .atime = (int64_t)random_u64(), .mtime = (int64_t)random_u64(),
        .ctime = (int64_t)random_u64()};

    *(S_ISCHR(attrs.mode) || S_ISBLK(attrs.mode) ? &attrs.rdev : &attrs.blocks) = random_u64();
    return attrs;
}

static inline void random_slot(struct random_record *made, int index)
{
    struct wb_slot *slot = &made->record.name.slots[index];
    char(*names)[WB_NAME_MAX] = &made->names[index * 3];

    slot->name = names[0];
    slot->name_length = random_name(names[0], index);
    slot->present = (uint8_t)random_below(2);
    if (slot->present) {
        slot->object = random_object();
        slot->attrs = random_attrs();
        slot->unbind = (uint8_t)(1 + random_below(2));
    }
    if (slot->unbind == WB_UNBIND_RENAMED) {
        slot->to_dir = random_object();
        slot->to_name = names[1];
        slot->to_length = random_name(names[1], index);
    }
    if (random_below(2)) {
        slot->from_dir = random_object();
        slot->from_name = names[2];
        slot->from_length = random_name(names[2], index);
    }
}

static inline void random_data(struct wb_record *record)
{
    struct wb_rec_data *data = &record->data;
    uint64_t at = 0;

    record->payload_length = (uint32_t)(1 + random_below(WB_PAYLOAD_MAX));
    data->attrs = random_attrs();
    data->offset = random_u64();
    data->length = random_u64();
    data->size_after = random_u64() >> 1;
    data->count = (uint32_t)random_below(WB_EXTENTS_MAX + 1);
    for (uint32_t i = 0; i < data->count; i++) {
        struct wb_extent *extent = &data->extents[i];

        extent->offset = at + random_below(1 << 20) * random_below(2);
        extent->kind = (uint32_t)random_below(3);
        extent->length = 1 + random_below(1 << 20);
        if (extent->kind == WB_EXTENT_INLINE) {
            extent->source = random_below(record->payload_length);
            extent->length = 1 + random_below(record->payload_length - extent->source);
        } else if (extent->kind == WB_EXTENT_IMAGE) {
            extent->source = random_u64() >> 2;
            extent->check = random_u64();
        }
        at = extent->offset + extent->length;
    }
}

static inline void random_index(struct wb_record *record)
{
    struct wb_rec_index *index = &record->index;

    index->from = random_u64() >> 1;
    index->previous = random_below(index->from + 1) / 2;
    index->first = (int64_t)random_below((uint64_t)record->when + 1);
    index->last = index->first + (int64_t)random_below((uint64_t)(record->when - index->first) + 1);
    index->count = (uint32_t)(1 + random_below(1000));
    index->types = (uint32_t)(1 + random_below(1000));
    index->attrs_when = random_below(2) ? index->first : 0;
    index->attrs = random_attrs();
    record->payload_length = random_below(2) ? index->count * 200 : 0;
}

static inline void random_filler(struct wb_record *record)
{
    record->filler.until = random_below(2) ? record->when : 0;
    record->payload_length = (uint32_t)random_below(4096);
}

static inline void random_thinned(struct wb_record *record)
{
    record->thinned.until = INT64_MAX - (int64_t)random_below(1000);
    record->payload_length = (uint32_t)random_below(1000);
}

/* Of those that stand for others, or lead to them. */
static inline void random_mark(struct wb_record *record)
{
    if (record->type == WB_REC_INDEX)
        random_index(record);
    else if (record->type == WB_REC_FILLER)
        random_filler(record);
    else
        random_thinned(record);
}

static inline void random_gap(struct wb_record *record)
{
    record->gap.since = (int64_t)random_below((uint64_t)record->when + 1);
    record->gap.reason = (uint8_t)(1 + random_below(7));
    record->gap.until = 0;
    if (record->gap.reason == WB_GAP_UNSEEN && random_below(2) > 0)
        record->gap.until = record->when - (int64_t)random_below((uint64_t)(record->when - record->gap.since) + 1);
}

static inline void random_record_make(struct random_record *made, enum wb_record_type type)
{
    struct wb_record *record = &made->record;

    memset(made, 0, sizeof(*made));
    record->type = (uint8_t)type;
    record->flags = (uint8_t)random_below(2);
    record->op = (uint16_t)random_below(WB_OP_MAX);
    record->when = (int64_t)(random_u64() >> 2);
    record->actor = (uint32_t)random_u64();
    switch (type) {
    case WB_REC_NAME:
        record->name.dir = random_attrs();
        record->name.count = (uint32_t)(1 + random_below(WB_SLOTS_MAX));
        for (uint32_t i = 0; i < record->name.count; i++)
            random_slot(made, (int)i);
        break;
    case WB_REC_ATTR:
        record->attr = (struct wb_rec_attr){.object = random_object(), .attrs = random_attrs(),
                                            .offset = random_u64(), .length = random_u64(),
                                            .size_after = random_u64() >> 1};
        if (random_below(2)) {
            record->flags |= WB_RECORD_STAGE;
            record->when |= 2;
            record->attr.begin = 1 + (int64_t)random_below((uint64_t)record->when - 1);
        }
        break;
    case WB_REC_DATA:
        random_data(record);
        break;
    case WB_REC_XATTR:
        record->xattr = (struct wb_rec_xattr){.object = random_object(), .attrs = random_attrs(),
                                              .present = (uint8_t)random_below(2),
                                              .name = made->names[0]};
        record->xattr.name_length = random_name(made->names[0], 0);
        record->payload_length = record->xattr.present ? (uint32_t)random_below(65537) : 0;
        break;
    case WB_REC_PLACE:
        record->place.self = random_object();
        if (random_below(4)) {
            record->place.parent = random_object();
            record->place.name = made->names[0];
            record->place.name_length = random_name(made->names[0], 0);
        }
        break;
    case WB_REC_ABORT:
        record->abort.target = 1 + (int64_t)(random_u64() >> 2);
        break;
    case WB_REC_GAP:
        random_gap(record);
        break;
    case WB_REC_ACTOR:
        record->actor_info = (struct wb_rec_actor){
            .uid = (uint32_t)random_u64(), .gid = (uint32_t)random_u64(),
            .pid = (uint32_t)random_u64(), .command = made->command,
            .command_length = (uint16_t)random_below(WB_COMMAND_MAX + 1)};
        for (int i = 0; i < record->actor_info.command_length; i++)
            made->command[i] = (char)random_below(256);
        break;
    case WB_REC_SNAPSHOT:
        record->when |= 1;
        record->snapshot = (struct wb_rec_snapshot){
            .moment = 1 + (int64_t)random_below((uint64_t)record->when), .scope = random_object(),
            .uid = (uint32_t)random_u64(), .present = (uint8_t)random_below(2),
            .automatic = (uint8_t)random_below(2), .name = made->names[0],
            .name_length = random_name(made->names[0], 0), .text = made->command,
            .text_length = (uint16_t)random_below(WB_SNAPSHOT_TEXT_MAX + 1), .path = made->path,
            .path_length = (uint16_t)random_below(WB_SNAPSHOT_PATH_MAX + 1)};
        memset(made->command, 't', sizeof(made->command));
        memset(made->path, 'p', sizeof(made->path));
        record->payload_length = (uint32_t)random_below(4096);
        break;
    default:
        random_mark(record);
        break;
    }
    if (record->payload_length)
        record->payload_check = random_u64();
}
