/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "format/bodies.h"

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
           wb_entry_name_valid(snapshot->name, snapshot->name_length) &&
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
    wb_put_i64(to, index->told);
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
    index->told = wb_get_i64(from);
    wb_get_attrs(from, &index->attrs);
}

static bool index_valid(const struct wb_record *record)
{
    const struct wb_rec_index *index = &record->index;

    return index->first >= 0 && index->first <= index->last && index->last <= record->when &&
           (index->previous == 0 || index->previous < index->from) && index->count > 0 && index->types != 0 &&
           (index->told == 0 || (index->told >= index->first && index->told <= index->last)) &&
           wb_attrs_valid(&index->attrs) &&
           (record->payload_length == 0 || record->payload_length / WB_HEAD_SIZE >= index->count);
}

const struct wb_body_codec wb_body_index = {put_index, get_index, index_valid};
