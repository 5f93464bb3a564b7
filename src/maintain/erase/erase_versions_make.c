/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * The records that stand for those of several changes. Of each byte and each extended attribute, what the oldest tells
 * is in one of them; all have the attributes before the first, and the range and size of nothing that went.
 */
#include "maintain/erase/erase_versions_parts.h"

#include "base/io.h"
#include <errno.h>
#include <string.h>
#include <xxhash.h>

/* Writes what waits. `more`: another record of the same change follows. */
int wb_erasing_put(struct wb_erasing *erasing, bool more)
{
    struct wb_erasing_made *made = &erasing->made;

    if (!made->pending)
        return 0;
    made->pending = false;
    made->record.flags |= more ? WB_RECORD_MORE : 0;
    return wb_rewrite_append_made(&erasing->rewrite, &made->record, made->payload);
}

/* The next record of one of the two changes, `type` of it. Who made what went is told by no record that stays. */
static int begin_made(struct wb_erasing *erasing, const struct wb_record *from, uint8_t type)
{
    bool joined = from->when != erasing->what->from;
    int64_t when = joined ? erasing->what->until : erasing->what->from;
    struct wb_erasing_made *made = &erasing->made;
    int r = wb_erasing_put(erasing, made->pending && made->record.when == when);

    made->record = (struct wb_record){.type = type, .op = WB_OP_WRITE, .when = when, .actor = erasing->actor,
                                      .flags = joined ? WB_RECORD_JOINED : 0, .via = from->via};
    if (from->via.length > 0)
        memcpy(made->via, from->via.name, from->via.length);
    made->record.via.name = made->via;
    made->pending = true;
    erasing->last = when;
    return r;
}

/* Tells nothing but the attributes. */
int wb_erasing_make_attr(struct wb_erasing *erasing, const struct wb_record *from)
{
    int r = begin_made(erasing, from, WB_REC_ATTR);
    struct wb_rec_attr *attr = &erasing->made.record.attr;

    attr->object = erasing->what->object;
    attr->attrs = erasing->attrs;
    attr->size_after = erasing->size_after;
    return r;
}

static int check_of_image(const struct wb_erasing *erasing, uint64_t offset, uint64_t length, uint64_t *ret)
{
    g_autofree uint8_t *bytes = g_try_malloc(WB_PAYLOAD_MAX);
    XXH3_state_t *state = XXH3_createState();
    int r = state && bytes ? 0 : -ENOMEM;

    if (r == 0)
        XXH3_64bits_reset(state);
    for (size_t step; r == 0 && length > 0; offset += step, length -= step) {
        step = (size_t)MIN(length, (uint64_t)WB_PAYLOAD_MAX);
        r = wb_pread_exact(erasing->image_fd, bytes, step, offset);
        if (r == 0)
            XXH3_64bits_update(state, bytes, step);
    }
    if (r == 0)
        *ret = XXH3_64bits_digest(state);
    XXH3_freeState(state);
    return r;
}

/* A part of an extent that no older change tells. An image with a checksum is verified before a part gets its own. */
static int make_part(struct wb_erasing *erasing, const struct wb_record *from, const struct wb_extent *extent,
                     uint64_t at, uint64_t end)
{
    struct wb_extent part = *extent;
    struct wb_rec_data *data = &erasing->made.record.data;
    bool whole = at == extent->offset && end == extent->offset + extent->length;
    uint64_t check;
    int r = 0;

    part.offset = at;
    part.length = end - at;
    if (!erasing->made.pending || erasing->made.record.type != WB_REC_DATA || data->count == WB_EXTENTS_MAX ||
        erasing->made.record.offset != from->offset) {
        r = begin_made(erasing, from, WB_REC_DATA);
        erasing->made.record.offset = from->offset;
        data->attrs = erasing->attrs;
        data->offset = at;
        data->size_after = erasing->size_after;
    }
    if (extent->kind == WB_EXTENT_INLINE) {
        memcpy(erasing->made.payload + erasing->made.record.payload_length,
               erasing->payload + extent->source + (at - extent->offset), part.length);
        part.source = erasing->made.record.payload_length;
        erasing->made.record.payload_length += (uint32_t)part.length;
    } else if (extent->kind == WB_EXTENT_IMAGE) {
        part.source += at - extent->offset;
        if (extent->check != 0 && !whole) {
            r = check_of_image(erasing, extent->source, extent->length, &check);
            if (r == 0 && check != extent->check)
                r = -EBADMSG;
            if (r == 0)
                r = check_of_image(erasing, part.source, part.length, &part.check);
        }
    }
    data->length = end - data->offset;
    data->extents[data->count++] = part;
    return r;
}

static int make_extent(struct wb_erasing *erasing, const struct wb_record *from, const struct wb_extent *extent)
{
    uint64_t at = extent->offset, end = at + extent->length, until;
    int r = 0;

    while (r == 0 && at < end) {
        const struct wb_piece *piece = wb_extent_map_find(&erasing->map, at, &until);
        uint64_t to = MIN(end, piece ? piece->offset + piece->length : until);

        if (!piece)
            r = make_part(erasing, from, extent, at, to);
        at = to;
    }
    return r;
}

static int tell(struct wb_erasing *erasing, uint64_t offset, uint64_t length)
{
    return wb_extent_map_fill(&erasing->map,
                              &(struct wb_piece){.offset = offset, .length = length, .kind = WB_EXTENT_ZERO});
}

static int make_data(struct wb_erasing *erasing, const struct wb_record *record)
{
    const struct wb_rec_data *data = &record->data;
    int r = 0;

    if (record->payload_length > 0)
        r = wb_log_read_payload(erasing->fd, record, erasing->payload);
    for (uint32_t i = 0; r == 0 && i < data->count; i++)
        r = make_extent(erasing, record, &data->extents[i]);
    for (uint32_t i = 0; r == 0 && i < data->count; i++)
        r = tell(erasing, data->extents[i].offset, data->extents[i].length);
    return r;
}

static int make_xattr(struct wb_erasing *erasing, const struct wb_record *record)
{
    char *name = g_strndup(record->xattr.name, record->xattr.name_length);
    struct wb_erasing_made *made = &erasing->made;
    int r;

    if (g_hash_table_contains(erasing->names, name) ||
        (!record->xattr.present &&
         GPOINTER_TO_UINT(g_hash_table_lookup(erasing->last_ops, name)) == WB_OP_REMOVEXATTR)) {
        /* It was not there before, and is not there afterwards: nobody needs to know that there was such a name. */
        g_hash_table_add(erasing->names, name);
        return 0;
    }
    r = begin_made(erasing, record, WB_REC_XATTR);
    made->record.op = record->op;
    made->record.xattr = record->xattr;
    made->record.xattr.attrs = erasing->attrs;
    memcpy(made->name, record->xattr.name, record->xattr.name_length);
    made->record.xattr.name = made->name;
    made->record.payload_length = record->payload_length;
    if (r == 0 && record->payload_length > 0)
        r = wb_log_read_payload(erasing->fd, record, made->payload);
    g_hash_table_add(erasing->names, name);
    return r;
}

/* Each of the two changes has a record at least. */
int wb_erasing_make(struct wb_erasing *erasing, const struct wb_record *record)
{
    bool begins = !erasing->begun;
    int r = 0;

    if (begins) {
        erasing->begun = true;
        erasing->attrs = *wb_erasing_attrs(record);
        r = tell(erasing, erasing->attrs.size, (uint64_t)INT64_MAX - erasing->attrs.size);
    }
    if (r == 0 && record->type == WB_REC_DATA)
        r = make_data(erasing, record);
    else if (r == 0 && record->type == WB_REC_XATTR)
        r = make_xattr(erasing, record);
    if (r == 0 && begins && erasing->last == 0)
        r = wb_erasing_make_attr(erasing, record);
    return r;
}
