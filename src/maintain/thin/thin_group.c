/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Changes that count together: for every moment there is a question for, all of them are walked, or none. So of each
 * byte only what the oldest of them tells is ever shown, and bytes at or past the size before the oldest are not shown
 * at all: whatever else tells of these is dead.
 */
#include "maintain/thin/thin_parts.h"

#include "base/checksum.h"
#include <errno.h>
#include <string.h>

void wb_thin_group_init(struct wb_thin_group *group)
{
    group->parts = g_array_new(FALSE, FALSE, sizeof(struct wb_thin_part));
    group->heads = g_byte_array_new();
}

void wb_thin_group_deinit(struct wb_thin_group *group)
{
    g_array_unref(group->parts);
    g_byte_array_unref(group->heads);
}

void wb_thin_group_clear(struct wb_thin_group *group)
{
    g_array_set_size(group->parts, 0);
    g_byte_array_set_size(group->heads, 0);
}

int wb_thin_group_add(struct wb_thin_group *group, const struct wb_record *record)
{
    uint8_t data[WB_HEAD_SIZE + WB_BODY_MAX];
    struct wb_record copy = *record;
    struct wb_thin_part part = {.offset = record->offset, .change = record->change, .at = group->heads->len};
    int length;

    copy.when = record->written;
    length = wb_record_encode(&copy, data);
    if (length < 0 || copy.total != record->total || copy.body_length != record->body_length)
        return -EBADMSG;
    part.length = (uint32_t)length;
    part.joined = record->flags & WB_RECORD_JOINED;
    g_byte_array_append(group->heads, data, (guint)length);
    g_array_append_val(group->parts, part);
    return 0;
}

void wb_thin_group_move(struct wb_thin_group *to, struct wb_thin_group *from)
{
    for (guint i = 0; i < from->parts->len; i++) {
        struct wb_thin_part part = g_array_index(from->parts, struct wb_thin_part, i);

        part.at += to->heads->len;
        g_array_append_val(to->parts, part);
    }
    g_byte_array_append(to->heads, from->heads->data, from->heads->len);
    wb_thin_group_clear(from);
}

/* ---- what is dead in it ---------------------------------------------------------------------- */

struct judging {
    int fd;
    bool is_new;
    struct wb_thin_patches *patches;
    struct wb_prune_image *image;
    uint64_t *dead_image;
    struct wb_extent_map told; /* by older ones, or past the end */
    GHashTable *names;         /* of extended attributes told by older ones */
    GArray *dead;              /* of one record: struct wb_extent, dead parts of its extents */
    uint8_t *payload;
};

static void note_image(struct judging *judging, const struct wb_extent *extent, uint64_t from, uint64_t length,
                       bool stays)
{
    struct wb_record record = {.type = WB_REC_DATA, .data.count = 1};

    record.data.extents[0] = *extent;
    record.data.extents[0].source += from - extent->offset;
    record.data.extents[0].length = length;
    wb_prune_image_note(judging->image, &record, stays);
    if (!stays)
        *judging->dead_image += length;
}

/* The parts of an extent that older ones tell go to judging->dead; how many bytes they are. */
static uint64_t find_dead(struct judging *judging, const struct wb_extent *extent)
{
    uint64_t at = extent->offset, end = at + extent->length, sum = 0, until;

    while (at < end) {
        const struct wb_piece *piece = wb_extent_map_find(&judging->told, at, &until);
        uint64_t to = MIN(end, piece ? piece->offset + piece->length : until);

        if (piece) {
            struct wb_extent part = *extent;

            part.source += at - extent->offset;
            part.offset = at;
            part.length = to - at;
            g_array_append_val(judging->dead, part);
            sum += to - at;
        }
        at = to;
    }
    return sum;
}

static void judge_image(struct judging *judging, struct wb_extent *extent, guint first, uint64_t dead)
{
    /* Where there is a checksum, it is that of all of it. */
    if (dead == 0 || (extent->check != 0 && dead < extent->length)) {
        note_image(judging, extent, extent->offset, extent->length, true);
        return;
    }
    extent->check = 0;
    if (dead < extent->length) {
        uint64_t at = extent->offset;

        for (guint i = first; i < judging->dead->len; i++) {
            const struct wb_extent *part = &g_array_index(judging->dead, struct wb_extent, i);

            if (part->offset > at)
                note_image(judging, extent, at, part->offset - at, true);
            at = part->offset + part->length;
        }
        if (at < extent->offset + extent->length)
            note_image(judging, extent, at, extent->offset + extent->length - at, true);
    }
    for (guint i = first; i < judging->dead->len; i++) {
        const struct wb_extent *part = &g_array_index(judging->dead, struct wb_extent, i);

        note_image(judging, extent, part->offset, part->length, false);
    }
}

/* Finds what of a DATA is dead; what it tells is known to newer ones from now on. */
static int judge_data(struct judging *judging, struct wb_record *record, bool oldest)
{
    int r = 0;

    g_array_set_size(judging->dead, 0);
    for (uint32_t i = 0; r == 0 && i < record->data.count; i++) {
        struct wb_extent *extent = &record->data.extents[i];
        guint first = judging->dead->len;
        uint64_t dead = oldest ? 0 : find_dead(judging, extent);

        if (extent->kind == WB_EXTENT_IMAGE)
            judge_image(judging, extent, first, dead);
        if (extent->kind != WB_EXTENT_INLINE)
            g_array_set_size(judging->dead, first);
    }
    for (uint32_t i = 0; r == 0 && i < record->data.count; i++)
        r = wb_extent_map_fill(&judging->told, &(struct wb_piece){.offset = record->data.extents[i].offset,
                                                                  .length = record->data.extents[i].length,
                                                                  .kind = WB_EXTENT_ZERO});
    return r;
}

/* The value of an extended attribute that an older one tells as well. */
static void judge_xattr(struct judging *judging, const struct wb_record *record, bool oldest)
{
    char *name = g_strndup(record->xattr.name, record->xattr.name_length);

    g_array_set_size(judging->dead, 0);
    if (!oldest && record->payload_length > 0 && g_hash_table_contains(judging->names, name))
        g_array_append_val(judging->dead, ((struct wb_extent){.length = record->payload_length}));
    g_hash_table_add(judging->names, name);
}

static int put_zeros(struct judging *judging, struct wb_record *record)
{
    int r;

    if (judging->dead->len == 0)
        return 0;
    if (!judging->payload)
        judging->payload = g_try_malloc(WB_PAYLOAD_MAX);
    if (!judging->payload)
        return -ENOMEM;
    r = wb_log_read_payload(judging->fd, record, judging->payload);
    if (r < 0)
        return r;
    for (guint i = 0; i < judging->dead->len; i++) {
        const struct wb_extent *part = &g_array_index(judging->dead, struct wb_extent, i);

        memset(judging->payload + part->source, 0, part->length);
        wb_thin_patch_zeros(judging->patches, record->payload_offset + part->source, part->length);
    }
    record->payload_check = wb_checksum(judging->payload, record->payload_length);
    return 0;
}

static int judge_part(struct judging *judging, const struct wb_thin_group *group, const struct wb_thin_part *part,
                      int64_t oldest)
{
    struct wb_record record;
    int r = wb_record_decode(group->heads->data + part->at, part->length, part->offset, &record);

    if (r < 0)
        return r;
    g_array_set_size(judging->dead, 0);
    if (record.type == WB_REC_DATA)
        r = judge_data(judging, &record, part->change == oldest);
    else if (record.type == WB_REC_XATTR)
        judge_xattr(judging, &record, part->change == oldest);
    if (r < 0 || !judging->is_new || part->change == oldest)
        return r;
    record.flags |= WB_RECORD_JOINED;
    r = put_zeros(judging, &record);
    return r == 0 ? wb_thin_patch_record(judging->patches, &record) : r;
}

/* The size before the oldest: nothing at or past it is ever shown. */
static int begin(struct judging *judging, const struct wb_thin_group *group)
{
    const struct wb_thin_part *part = &g_array_index(group->parts, struct wb_thin_part, group->parts->len - 1);
    const struct wb_attrs *attrs;
    struct wb_record record;
    int r = wb_record_decode(group->heads->data + part->at, part->length, part->offset, &record);

    if (r < 0)
        return r;
    attrs = record.type == WB_REC_DATA ? &record.data.attrs
            : record.type == WB_REC_ATTR ? &record.attr.attrs
                                         : &record.xattr.attrs;
    return wb_extent_map_fill(&judging->told, &(struct wb_piece){.offset = attrs->size,
                                                                 .length = (uint64_t)INT64_MAX - attrs->size,
                                                                 .kind = WB_EXTENT_ZERO});
}

int wb_thin_group_judge(const struct wb_thin_group *group, int fd, bool is_new, struct wb_thin_patches *patches,
                        struct wb_prune_image *image, uint64_t *dead_image)
{
    struct judging judging = {.fd = fd, .is_new = is_new, .patches = patches, .image = image,
                              .dead_image = dead_image};
    int64_t oldest;
    int r;

    if (group->parts->len == 0)
        return 0;
    wb_extent_map_init(&judging.told);
    judging.names = g_hash_table_new_full(g_str_hash, g_str_equal, g_free, NULL);
    judging.dead = g_array_new(FALSE, FALSE, sizeof(struct wb_extent));
    oldest = g_array_index(group->parts, struct wb_thin_part, group->parts->len - 1).change;
    r = begin(&judging, group);
    for (guint i = group->parts->len; r == 0 && i-- > 0;)
        r = judge_part(&judging, group, &g_array_index(group->parts, struct wb_thin_part, i), oldest);
    g_array_unref(judging.dead);
    g_hash_table_unref(judging.names);
    wb_extent_map_deinit(&judging.told);
    g_free(judging.payload);
    return r;
}
