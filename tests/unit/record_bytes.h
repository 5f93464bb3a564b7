/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

/*
 * Encoded records to tamper with.
 */

#include "base/checksum.h"
#include "format/format.h"
#include <endian.h>
#include <stdlib.h>
#include <string.h>

/* Exactly as many bytes as there are, so that reading past them is seen by the sanitizer. */
static inline int decode_exactly(const uint8_t *data, size_t length, uint64_t offset, struct wb_record *ret)
{
    uint8_t *copy = malloc(length ? length : 1);
    int r;

    memcpy(copy, data, length);
    r = wb_record_decode(copy, length, offset, ret);
    free(copy);
    return r;
}

/* Makes head and body consistent again after a field was changed on purpose. */
static inline void reseal(uint8_t *data, uint32_t body_length)
{
    uint8_t joined[40 + WB_BODY_MAX];
    uint64_t check;

    memcpy(joined, data, 40);
    memcpy(joined + 40, data + WB_HEAD_SIZE, body_length);
    check = htole64(wb_checksum(joined, 40 + body_length));
    memcpy(data + 40, &check, 8);
}

/* A record of each type of which every field can be made wrong. */
static inline void good_record(struct wb_record *record, enum wb_record_type type)
{
    static const struct wb_attrs attrs = {.mode = 0100644, .nlink = 1, .size = 9000};

    memset(record, 0, sizeof(*record));
    record->type = (uint8_t)type;
    record->op = WB_OP_WRITE;
    record->when = 1000;
    switch (type) {
    case WB_REC_NAME:
        record->name.dir = attrs;
        record->name.count = 1;
        record->name.slots[0] = (struct wb_slot){
            .name = "name", .name_length = 4, .present = 1, .unbind = WB_UNBIND_RENAMED,
            .object = {5, 6}, .attrs = attrs, .to_dir = {7, 8}, .to_name = "goes", .to_length = 4,
            .from_dir = {9, 10}, .from_name = "came", .from_length = 4};
        break;
    case WB_REC_ATTR:
        record->attr = (struct wb_rec_attr){.object = {5, 6}, .attrs = attrs};
        break;
    case WB_REC_DATA:
        record->payload_length = 100;
        record->payload_check = 77;
        record->data = (struct wb_rec_data){
            .attrs = attrs, .count = 3,
            .extents = {{.offset = 0, .length = 100, .kind = WB_EXTENT_INLINE},
                        {.offset = 1000, .length = 10, .kind = WB_EXTENT_ZERO},
                        {.offset = 4096, .length = 4096, .kind = WB_EXTENT_IMAGE, .check = 9}}};
        break;
    case WB_REC_XATTR:
        record->payload_length = 3;
        record->payload_check = 77;
        record->xattr = (struct wb_rec_xattr){.object = {5, 6}, .attrs = attrs, .present = 1,
                                              .name = "user.a/b", .name_length = 8};
        break;
    case WB_REC_PLACE:
        record->place = (struct wb_rec_place){.self = {5, 6}, .parent = {7, 8}, .name = "here",
                                              .name_length = 4};
        break;
    case WB_REC_ABORT:
        record->abort.target = 999;
        break;
    case WB_REC_GAP:
        record->gap = (struct wb_rec_gap){.since = 900, .reason = WB_GAP_UNSEEN, .until = 950};
        break;
    case WB_REC_ACTOR:
        record->actor_info = (struct wb_rec_actor){.uid = 1, .gid = 2, .pid = 3, .command = "vim a",
                                                   .command_length = 5};
        break;
    case WB_REC_SNAPSHOT:
        record->snapshot = (struct wb_rec_snapshot){.moment = 990, .scope = {5, 6}, .uid = 1, .present = 1,
                                                    .name = "name", .name_length = 4, .text = "text",
                                                    .text_length = 4, .path = "path", .path_length = 4};
        break;
    case WB_REC_INDEX:
        record->payload_length = 176;
        record->payload_check = 77;
        record->index = (struct wb_rec_index){.from = 5000, .previous = 4000, .first = 900, .last = 990, .count = 1,
                                              .types = 1u << WB_REC_DATA, .attrs_when = 950, .attrs = attrs};
        break;
    case WB_REC_FILLER:
        record->filler.until = 990;
        break;
    case WB_REC_THINNED:
        record->thinned.until = 1001;
        break;
    }
}
