/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "base/checksum.h"
#include "format/cursor.h"
#include "format/object_key.h"

#include <errno.h>

/* The index of a bundle: the files whose content it holds, and the places of that content. */

#define MAGIC "WBBUNDL\n"
#define MAGIC_SIZE 8

void wb_bundle_encode_end(const struct wb_bundle_end *end, uint8_t data[WB_BUNDLE_END_SIZE])
{
    struct wb_writer to = {.data = data, .length = WB_BUNDLE_END_SIZE};

    wb_put_bytes(&to, MAGIC, MAGIC_SIZE);
    wb_put_u32(&to, end->members);
    wb_put_u32(&to, end->extents);
    wb_put_u64(&to, 0);
    wb_put_u64(&to, end->check);
}

int wb_bundle_decode_end(const uint8_t data[WB_BUNDLE_END_SIZE], struct wb_bundle_end *ret)
{
    struct wb_reader from = {.data = data, .length = WB_BUNDLE_END_SIZE};
    const void *magic = wb_get_bytes(&from, MAGIC_SIZE);

    ret->members = wb_get_u32(&from);
    ret->extents = wb_get_u32(&from);
    wb_get_zeros(&from, 8);
    ret->check = wb_get_u64(&from);
    if (memcmp(magic, MAGIC, MAGIC_SIZE) != 0 || from.nonzero || ret->members == 0 ||
        ret->members > WB_BUNDLE_MEMBERS_MAX || ret->extents > WB_BUNDLE_EXTENTS_MAX)
        return -EBADMSG;
    return 0;
}

void wb_bundle_encode_index(const struct wb_bundle_end *end, const struct wb_bundle_member *members,
                            const struct wb_bundle_extent *extents, uint8_t *data)
{
    struct wb_writer to = {.data = data, .length = wb_bundle_index_size(end)};

    for (uint32_t i = 0; i < end->members; i++) {
        wb_put_object(&to, members[i].object);
        wb_put_u64(&to, members[i].chain);
        wb_put_u64(&to, members[i].size);
        wb_put_i64(&to, members[i].atime);
        wb_put_i64(&to, members[i].mtime);
        wb_put_i64(&to, members[i].lost);
        wb_put_u32(&to, members[i].first);
        wb_put_u32(&to, members[i].count);
    }
    for (uint32_t i = 0; i < end->extents; i++) {
        wb_put_u64(&to, extents[i].offset);
        wb_put_u64(&to, extents[i].length);
        wb_put_u64(&to, extents[i].at);
    }
}

/* The extents are in ascending order, within the file and within the packed bytes. */
static int extents_valid(const struct wb_bundle_member *member, const struct wb_bundle_extent *extents, uint64_t room)
{
    uint64_t end = 0;

    for (uint32_t i = member->first; i < member->first + member->count; i++) {
        const struct wb_bundle_extent *extent = &extents[i];

        if (extent->length == 0 || extent->offset < end || extent->offset > member->size ||
            extent->length > member->size - extent->offset || extent->at > room || extent->length > room - extent->at)
            return 0;
        end = extent->offset + extent->length;
    }
    return 1;
}

int wb_bundle_decode_index(const struct wb_bundle_end *end, const uint8_t *data, uint64_t room,
                           struct wb_bundle_member *members, struct wb_bundle_extent *extents)
{
    struct wb_reader from = {.data = data, .length = wb_bundle_index_size(end)};

    if (wb_checksum(data, from.length) != end->check)
        return -EBADMSG;
    for (uint32_t i = 0; i < end->members; i++) {
        struct wb_bundle_member *member = &members[i];

        member->object = wb_get_object(&from);
        member->chain = wb_get_u64(&from);
        member->size = wb_get_u64(&from);
        member->atime = wb_get_i64(&from);
        member->mtime = wb_get_i64(&from);
        member->lost = wb_get_i64(&from);
        member->first = wb_get_u32(&from);
        member->count = wb_get_u32(&from);
        if (member->size > INT64_MAX || member->first > end->extents || member->count > end->extents - member->first ||
            (i > 0 && wb_object_compare(members[i - 1].object, member->object) >= 0))
            return -EBADMSG;
    }
    for (uint32_t i = 0; i < end->extents; i++) {
        extents[i].offset = wb_get_u64(&from);
        extents[i].length = wb_get_u64(&from);
        extents[i].at = wb_get_u64(&from);
    }
    for (uint32_t i = 0; i < end->members; i++)
        if (!extents_valid(&members[i], extents, room))
            return -EBADMSG;
    return wb_reader_complete(&from) ? 0 : -EBADMSG;
}
