/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "format/bodies.h"


/*
 * The bodies of records, each with put, get and valid. docs/format.md gives the order of the fields. Counts are checked
 * before a loop uses them; all other fields are checked once, after the cursor has passed the whole body.
 */

#define NAME_FIXED (WB_ATTRS_SIZE + 8)
#define SLOT_FIXED (8 + 16 + WB_ATTRS_SIZE + 16 + 16)
#define DATA_FIXED (WB_ATTRS_SIZE + 3 * 8 + 8)
#define XATTR_FIXED (16 + WB_ATTRS_SIZE + 8)
#define VIA_MAX (16 + 8 + WB_NAME_MAX)

_Static_assert(NAME_FIXED + WB_SLOTS_MAX * (SLOT_FIXED + 3 * WB_NAME_MAX) <= WB_BODY_MAX, "NAME fits");
_Static_assert(DATA_FIXED + WB_EXTENTS_MAX * WB_EXTENT_SIZE + VIA_MAX <= WB_BODY_MAX, "DATA fits");
_Static_assert(XATTR_FIXED + WB_NAME_MAX + VIA_MAX <= WB_BODY_MAX, "XATTR fits");

/* ---- parts ----------------------------------------------------------------------------------- */

/* Whether both ends of a range of a file fit into off_t. */
static bool range_valid(uint64_t offset, uint64_t length)
{
    return offset <= INT64_MAX && length <= INT64_MAX - offset;
}

/* A name of a directory entry: not empty, no '/' or NUL, neither "." nor "..". */
static bool entry_name_valid(const char *name, size_t length)
{
    if (length == 0 || length > WB_NAME_MAX || !name)
        return false;
    if (memchr(name, '/', length) || memchr(name, '\0', length))
        return false;
    return !(name[0] == '.' && (length == 1 || (length == 2 && name[1] == '.')));
}

/* The last field of a body. It may be missing: version 1 did not have it. */
static void put_via(struct wb_writer *to, const struct wb_via *via)
{
    if (via->length == 0)
        return;
    wb_put_object(to, via->dir);
    wb_put_u8(to, via->length);
    wb_put_zeros(to, 7);
    wb_put_bytes(to, via->name, via->length);
}

static void get_via(struct wb_reader *from, struct wb_via *via)
{
    *via = (struct wb_via){WB_OBJECT_NONE, 0, NULL};
    if (from->position == from->length)
        return;
    via->dir = wb_get_object(from);
    via->length = wb_get_u8(from);
    wb_get_zeros(from, 7);
    via->name = wb_get_bytes(from, via->length);
    from->nonzero |= via->length == 0; /* "not known" has one encoding only */
}

static bool via_valid(const struct wb_via *via)
{
    return via->length == 0 || entry_name_valid(via->name, via->length);
}

/* ---- NAME ------------------------------------------------------------------------------------ */

static void put_slot(struct wb_writer *to, const struct wb_slot *slot)
{
    wb_put_u8(to, slot->name_length);
    wb_put_u8(to, slot->present);
    wb_put_u8(to, slot->unbind);
    wb_put_u8(to, slot->to_length);
    wb_put_u8(to, slot->from_length);
    wb_put_zeros(to, 3);
    wb_put_object(to, slot->object);
    wb_put_attrs(to, &slot->attrs);
    wb_put_object(to, slot->to_dir);
    wb_put_object(to, slot->from_dir);
    wb_put_bytes(to, slot->name, slot->name_length);
    wb_put_bytes(to, slot->to_name, slot->to_length);
    wb_put_bytes(to, slot->from_name, slot->from_length);
}

static void get_slot(struct wb_reader *from, struct wb_slot *slot)
{
    slot->name_length = wb_get_u8(from);
    slot->present = wb_get_u8(from);
    slot->unbind = wb_get_u8(from);
    slot->to_length = wb_get_u8(from);
    slot->from_length = wb_get_u8(from);
    wb_get_zeros(from, 3);
    slot->object = wb_get_object(from);
    wb_get_attrs(from, &slot->attrs);
    slot->to_dir = wb_get_object(from);
    slot->from_dir = wb_get_object(from);
    slot->name = wb_get_bytes(from, slot->name_length);
    slot->to_name = wb_get_bytes(from, slot->to_length);
    slot->from_name = wb_get_bytes(from, slot->from_length);
}

/* A directory and a name in it, or neither of them. */
static bool reference_valid(struct wb_object dir, const char *name, size_t length, bool wanted)
{
    if (!wanted)
        return wb_object_is_none(dir) && length == 0;
    return !wb_object_is_none(dir) && entry_name_valid(name, length);
}

static bool slot_valid(const struct wb_slot *slot)
{
    if (!entry_name_valid(slot->name, slot->name_length) || slot->present > 1 || slot->unbind > WB_UNBIND_RENAMED ||
        !wb_attrs_valid(&slot->attrs))
        return false;
    if (slot->present != (slot->unbind != WB_UNBIND_NONE) || slot->present != !wb_object_is_none(slot->object))
        return false;
    return reference_valid(slot->to_dir, slot->to_name, slot->to_length, slot->unbind == WB_UNBIND_RENAMED) &&
           reference_valid(slot->from_dir, slot->from_name, slot->from_length, !wb_object_is_none(slot->from_dir));
}

static void put_name(struct wb_writer *to, const struct wb_record *record)
{
    const struct wb_rec_name *name = &record->name;

    wb_put_attrs(to, &name->dir);
    wb_put_u32(to, name->count);
    wb_put_u32(to, 0);
    for (uint32_t i = 0; i < name->count; i++)
        put_slot(to, &name->slots[i]);
}

static void get_name(struct wb_reader *from, struct wb_record *record)
{
    struct wb_rec_name *name = &record->name;

    wb_get_attrs(from, &name->dir);
    name->count = wb_get_u32(from);
    wb_get_zeros(from, 4);
    for (uint32_t i = 0; i < name->count && i < WB_SLOTS_MAX; i++)
        get_slot(from, &name->slots[i]);
}

static bool name_valid(const struct wb_record *record)
{
    const struct wb_rec_name *name = &record->name;

    if (name->count < 1 || name->count > WB_SLOTS_MAX || !wb_attrs_valid(&name->dir) ||
        record->payload_length != 0)
        return false;
    for (uint32_t i = 0; i < name->count; i++) {
        if (!slot_valid(&name->slots[i]))
            return false;
    }
    /* Two states of the same name at the same time would contradict each other. */
    return name->count < 2 || name->slots[0].name_length != name->slots[1].name_length ||
           memcmp(name->slots[0].name, name->slots[1].name, name->slots[0].name_length) != 0;
}

/* ---- ATTR ------------------------------------------------------------------------------------ */

static void put_attr(struct wb_writer *to, const struct wb_record *record)
{
    wb_put_object(to, record->attr.object);
    wb_put_attrs(to, &record->attr.attrs);
    wb_put_u64(to, record->attr.offset);
    wb_put_u64(to, record->attr.length);
    wb_put_u64(to, record->attr.size_after);
    if (record->flags & WB_RECORD_STAGE)
        wb_put_i64(to, record->attr.begin);
    put_via(to, &record->via);
}

static void get_attr(struct wb_reader *from, struct wb_record *record)
{
    record->attr.object = wb_get_object(from);
    wb_get_attrs(from, &record->attr.attrs);
    record->attr.offset = wb_get_u64(from);
    record->attr.length = wb_get_u64(from);
    record->attr.size_after = wb_get_u64(from);
    record->attr.begin = record->flags & WB_RECORD_STAGE ? wb_get_i64(from) : 0;
    get_via(from, &record->via);
}

static bool attr_valid(const struct wb_record *record)
{
    return !wb_object_is_none(record->attr.object) && wb_attrs_valid(&record->attr.attrs) &&
           record->attr.size_after <= INT64_MAX && record->payload_length == 0 && via_valid(&record->via) &&
           (!(record->flags & WB_RECORD_STAGE) || (record->attr.begin > 0 && record->attr.begin < record->when));
}

/* ---- DATA ------------------------------------------------------------------------------------ */

static void put_data(struct wb_writer *to, const struct wb_record *record)
{
    const struct wb_rec_data *data = &record->data;

    wb_put_attrs(to, &data->attrs);
    wb_put_u64(to, data->offset);
    wb_put_u64(to, data->length);
    wb_put_u64(to, data->size_after);
    wb_put_u32(to, data->count);
    wb_put_u32(to, 0);
    for (uint32_t i = 0; i < data->count; i++) {
        wb_put_u64(to, data->extents[i].offset);
        wb_put_u64(to, data->extents[i].length);
        wb_put_u64(to, data->extents[i].source);
        wb_put_u32(to, data->extents[i].kind);
        wb_put_u32(to, 0);
        wb_put_u64(to, data->extents[i].check);
    }
    put_via(to, &record->via);
}

static void get_data(struct wb_reader *from, struct wb_record *record)
{
    struct wb_rec_data *data = &record->data;

    wb_get_attrs(from, &data->attrs);
    data->offset = wb_get_u64(from);
    data->length = wb_get_u64(from);
    data->size_after = wb_get_u64(from);
    data->count = wb_get_u32(from);
    wb_get_zeros(from, 4);
    for (uint32_t i = 0; i < data->count && i < WB_EXTENTS_MAX; i++) {
        data->extents[i].offset = wb_get_u64(from);
        data->extents[i].length = wb_get_u64(from);
        data->extents[i].source = wb_get_u64(from);
        data->extents[i].kind = wb_get_u32(from);
        wb_get_zeros(from, 4);
        data->extents[i].check = wb_get_u64(from);
    }
    get_via(from, &record->via);
}

static bool extent_valid(const struct wb_extent *extent, uint32_t payload_length)
{
    if (extent->length == 0 || !range_valid(extent->offset, extent->length))
        return false;
    switch (extent->kind) {
    case WB_EXTENT_INLINE:
        return extent->source <= payload_length && extent->length <= payload_length - extent->source &&
               extent->check == 0;
    case WB_EXTENT_ZERO:
        return extent->source == 0 && extent->check == 0;
    case WB_EXTENT_IMAGE:
        return range_valid(extent->source, extent->length);
    default:
        return false;
    }
}

static bool data_valid(const struct wb_record *record)
{
    const struct wb_rec_data *data = &record->data;
    uint64_t end = 0;

    if (data->count > WB_EXTENTS_MAX || !wb_attrs_valid(&data->attrs) || data->size_after > INT64_MAX)
        return false;
    for (uint32_t i = 0; i < data->count; i++) {
        const struct wb_extent *extent = &data->extents[i];

        if (!extent_valid(extent, record->payload_length) || extent->offset < end)
            return false;
        end = extent->offset + extent->length;
    }
    return via_valid(&record->via);
}

/* ---- XATTR ----------------------------------------------------------------------------------- */

static void put_xattr(struct wb_writer *to, const struct wb_record *record)
{
    const struct wb_rec_xattr *xattr = &record->xattr;

    wb_put_object(to, xattr->object);
    wb_put_attrs(to, &xattr->attrs);
    wb_put_u8(to, xattr->present);
    wb_put_u8(to, xattr->name_length);
    wb_put_zeros(to, 6);
    wb_put_bytes(to, xattr->name, xattr->name_length);
    put_via(to, &record->via);
}

static void get_xattr(struct wb_reader *from, struct wb_record *record)
{
    struct wb_rec_xattr *xattr = &record->xattr;

    xattr->object = wb_get_object(from);
    wb_get_attrs(from, &xattr->attrs);
    xattr->present = wb_get_u8(from);
    xattr->name_length = wb_get_u8(from);
    wb_get_zeros(from, 6);
    xattr->name = wb_get_bytes(from, xattr->name_length);
    get_via(from, &record->via);
}

static bool xattr_valid(const struct wb_record *record)
{
    const struct wb_rec_xattr *xattr = &record->xattr;

    /* Slashes are allowed: it is not the name of a directory entry. */
    return !wb_object_is_none(xattr->object) && wb_attrs_valid(&xattr->attrs) && xattr->present <= 1 &&
           xattr->name_length > 0 && xattr->name && !memchr(xattr->name, '\0', xattr->name_length) &&
           (xattr->present || record->payload_length == 0) && via_valid(&record->via);
}

/* ---- PLACE ----------------------------------------------------------------------------------- */

static void put_place(struct wb_writer *to, const struct wb_record *record)
{
    wb_put_object(to, record->place.self);
    wb_put_object(to, record->place.parent);
    wb_put_u8(to, record->place.name_length);
    wb_put_zeros(to, 7);
    wb_put_bytes(to, record->place.name, record->place.name_length);
}

static void get_place(struct wb_reader *from, struct wb_record *record)
{
    record->place.self = wb_get_object(from);
    record->place.parent = wb_get_object(from);
    record->place.name_length = wb_get_u8(from);
    wb_get_zeros(from, 7);
    record->place.name = wb_get_bytes(from, record->place.name_length);
}

static bool place_valid(const struct wb_record *record)
{
    const struct wb_rec_place *place = &record->place;

    /* Only the root has no parent, and only the root has no name. */
    return !wb_object_is_none(place->self) && record->payload_length == 0 &&
           reference_valid(place->parent, place->name, place->name_length,
                           !wb_object_is_none(place->parent));
}

/* ---- ABORT, GAP ------------------------------------------------------------------------------ */

static void put_abort(struct wb_writer *to, const struct wb_record *record)
{
    wb_put_i64(to, record->abort.target);
}

static void get_abort(struct wb_reader *from, struct wb_record *record)
{
    record->abort.target = wb_get_i64(from);
}

static bool abort_valid(const struct wb_record *record)
{
    return record->abort.target > 0 && record->payload_length == 0;
}

static void put_gap(struct wb_writer *to, const struct wb_record *record)
{
    wb_put_i64(to, record->gap.since);
    wb_put_u8(to, record->gap.reason);
    wb_put_zeros(to, 7);
    if (record->gap.until != 0) {
        wb_put_i64(to, record->gap.until);
        put_via(to, &record->via);
    }
}

static void get_gap(struct wb_reader *from, struct wb_record *record)
{
    record->gap.since = wb_get_i64(from);
    record->gap.reason = wb_get_u8(from);
    wb_get_zeros(from, 7);
    record->gap.until = 0;
    record->via.length = 0;
    if (from->position == from->length)
        return;
    record->gap.until = wb_get_i64(from);
    from->nonzero |= record->gap.until == 0; /* "not known" has one encoding only */
    get_via(from, &record->via);
}

static bool gap_valid(const struct wb_record *record)
{
    const struct wb_rec_gap *gap = &record->gap;

    if (gap->until != 0 && (gap->until < gap->since || gap->until > record->when ||
                            (gap->reason != WB_GAP_UNSEEN && gap->reason != WB_GAP_POWER)))
        return false;
    return record->gap.since <= record->when && record->gap.reason >= WB_GAP_REFUSED &&
           record->gap.reason <= WB_GAP_POLICY && record->payload_length == 0 && via_valid(&record->via);
}

/* ---- FILLER ---------------------------------------------------------------------------------- */

static void put_filler(struct wb_writer *to, const struct wb_record *record)
{
    wb_put_i64(to, record->filler.until);
}

static void get_filler(struct wb_reader *from, struct wb_record *record)
{
    record->filler.until = wb_get_i64(from);
}

static bool filler_valid(const struct wb_record *record)
{
    return record->filler.until >= 0 && record->filler.until <= record->when;
}

/* ---- THINNED --------------------------------------------------------------------------------- */

static void put_thinned(struct wb_writer *to, const struct wb_record *record)
{
    wb_put_i64(to, record->thinned.until);
}

static void get_thinned(struct wb_reader *from, struct wb_record *record)
{
    record->thinned.until = wb_get_i64(from);
}

static bool thinned_valid(const struct wb_record *record)
{
    return record->thinned.until > record->when;
}

/* ---- the table ------------------------------------------------------------------------------- */

static const struct wb_body_codec codecs[] = {
    [WB_REC_NAME] = {put_name, get_name, name_valid},
    [WB_REC_ATTR] = {put_attr, get_attr, attr_valid},
    [WB_REC_DATA] = {put_data, get_data, data_valid},
    [WB_REC_XATTR] = {put_xattr, get_xattr, xattr_valid},
    [WB_REC_PLACE] = {put_place, get_place, place_valid},
    [WB_REC_ABORT] = {put_abort, get_abort, abort_valid},
    [WB_REC_GAP] = {put_gap, get_gap, gap_valid},
    [WB_REC_FILLER] = {put_filler, get_filler, filler_valid},
    [WB_REC_THINNED] = {put_thinned, get_thinned, thinned_valid},
};

const struct wb_body_codec *wb_body_codec(unsigned type)
{
    if (type == WB_REC_ACTOR)
        return &wb_body_actor;
    if (type == WB_REC_SNAPSHOT)
        return &wb_body_snapshot;
    if (type == WB_REC_INDEX)
        return &wb_body_index;
    if (type >= sizeof(codecs) / sizeof(codecs[0]) || !codecs[type].put)
        return NULL;
    return &codecs[type];
}

/* The bodies of records that describe no file: actors, snapshots, and indexes of a log. */

#define SNAPSHOT_FIXED (8 + 16 + 4 + 3 + 1 + 2 + 2 + 4)

_Static_assert(16 + WB_COMMAND_MAX <= WB_BODY_MAX, "ACTOR fits");
_Static_assert(SNAPSHOT_FIXED + WB_NAME_MAX + WB_SNAPSHOT_TEXT_MAX + WB_SNAPSHOT_PATH_MAX <= WB_BODY_MAX,
               "SNAPSHOT fits");

/* ---- ACTOR ----------------------------------------------------------------------------------- */

static void put_actor(struct wb_writer *to, const struct wb_record *record)
{
    const struct wb_rec_actor *actor = &record->actor_info;

    wb_put_u32(to, actor->uid);
    wb_put_u32(to, actor->gid);
    wb_put_u32(to, actor->pid);
    wb_put_u16(to, actor->command_length);
    wb_put_zeros(to, 2);
    wb_put_bytes(to, actor->command, actor->command_length);
}

static void get_actor(struct wb_reader *from, struct wb_record *record)
{
    struct wb_rec_actor *actor = &record->actor_info;

    actor->uid = wb_get_u32(from);
    actor->gid = wb_get_u32(from);
    actor->pid = wb_get_u32(from);
    actor->command_length = wb_get_u16(from);
    wb_get_zeros(from, 2);
    actor->command = wb_get_bytes(from, actor->command_length);
}

static bool actor_valid(const struct wb_record *record)
{
    return record->actor_info.command_length <= WB_COMMAND_MAX && record->payload_length == 0;
}

const struct wb_body_codec wb_body_actor = {put_actor, get_actor, actor_valid};

/* ---- SNAPSHOT -------------------------------------------------------------------------------- */

static void put_snapshot(struct wb_writer *to, const struct wb_record *record)
{
    const struct wb_rec_snapshot *snapshot = &record->snapshot;

    wb_put_i64(to, snapshot->moment);
    wb_put_object(to, snapshot->scope);
    wb_put_u32(to, snapshot->uid);
    wb_put_u8(to, snapshot->present);
    wb_put_u8(to, snapshot->automatic);
    wb_put_u8(to, snapshot->name_length);
    wb_put_zeros(to, 1);
    wb_put_u16(to, snapshot->text_length);
    wb_put_u16(to, snapshot->path_length);
    wb_put_zeros(to, 4);
    wb_put_bytes(to, snapshot->name, snapshot->name_length);
    wb_put_bytes(to, snapshot->text, snapshot->text_length);
    wb_put_bytes(to, snapshot->path, snapshot->path_length);
}

static void get_snapshot(struct wb_reader *from, struct wb_record *record)
{
    struct wb_rec_snapshot *snapshot = &record->snapshot;

    snapshot->moment = wb_get_i64(from);
    snapshot->scope = wb_get_object(from);
    snapshot->uid = wb_get_u32(from);
    snapshot->present = wb_get_u8(from);
    snapshot->automatic = wb_get_u8(from);
    snapshot->name_length = wb_get_u8(from);
    wb_get_zeros(from, 1);
    snapshot->text_length = wb_get_u16(from);
    snapshot->path_length = wb_get_u16(from);
    wb_get_zeros(from, 4);
    snapshot->name = wb_get_bytes(from, snapshot->name_length);
    snapshot->text = wb_get_bytes(from, snapshot->text_length);
    snapshot->path = wb_get_bytes(from, snapshot->path_length);
}

static bool holds_nul(const char *text, size_t length)
{
    return length > 0 && memchr(text, '\0', length);
}

static bool snapshot_valid(const struct wb_record *record)
{
    const struct wb_rec_snapshot *snapshot = &record->snapshot;

    return snapshot->moment > 0 && snapshot->moment <= record->when && snapshot->present <= 1 &&
           snapshot->automatic <= 1 && !wb_object_is_none(snapshot->scope) &&
           snapshot->text_length <= WB_SNAPSHOT_TEXT_MAX && snapshot->path_length <= WB_SNAPSHOT_PATH_MAX &&
           entry_name_valid(snapshot->name, snapshot->name_length) &&
           !holds_nul(snapshot->text, snapshot->text_length) &&
           !holds_nul(snapshot->path, snapshot->path_length);
}

const struct wb_body_codec wb_body_snapshot = {put_snapshot, get_snapshot, snapshot_valid};

/* ---- INDEX ----------------------------------------------------------------------------------- */

static void put_index(struct wb_writer *to, const struct wb_record *record)
{
    const struct wb_rec_index *index = &record->index;

    wb_put_u64(to, index->from);
    wb_put_u64(to, index->previous);
    wb_put_i64(to, index->first);
    wb_put_i64(to, index->last);
    wb_put_u32(to, index->count);
    wb_put_u32(to, index->types);
    wb_put_i64(to, index->attrs_when);
    wb_put_attrs(to, &index->attrs);
}

static void get_index(struct wb_reader *from, struct wb_record *record)
{
    struct wb_rec_index *index = &record->index;

    index->from = wb_get_u64(from);
    index->previous = wb_get_u64(from);
    index->first = wb_get_i64(from);
    index->last = wb_get_i64(from);
    index->count = wb_get_u32(from);
    index->types = wb_get_u32(from);
    index->attrs_when = wb_get_i64(from);
    wb_get_attrs(from, &index->attrs);
}

static bool index_valid(const struct wb_record *record)
{
    const struct wb_rec_index *index = &record->index;

    return index->first >= 0 && index->first <= index->last && index->last <= record->when &&
           (index->previous == 0 || index->previous < index->from) && index->count > 0 && index->types != 0 &&
           (index->attrs_when == 0 || (index->attrs_when >= index->first && index->attrs_when <= index->last)) &&
           wb_attrs_valid(&index->attrs) &&
           (record->payload_length == 0 || record->payload_length / WB_HEAD_SIZE >= index->count);
}

const struct wb_body_codec wb_body_index = {put_index, get_index, index_valid};
