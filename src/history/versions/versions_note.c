/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "history/versions/versions_walk.h"

#include <glib.h>
#include <string.h>
#include <sys/param.h>

/*
 * Describes one change for display, combined from its records: its parts in one log, the name that changed its object
 * and the change of the link count. A record with more information replaces the description from one with less.
 */

enum rank {
    RANK_ATTR = 1,
    RANK_XATTR,
    RANK_DATA,
    RANK_ENTRY,    /* in a directory's own list    */
    RANK_FORMER,   /* at a former name of the object */
    RANK_NAME,     /* of the requested name        */
};

static bool begin(struct wb_note *note, unsigned rank, const struct wb_record *record)
{
    struct wb_version *version = &note->version;

    if (rank <= note->rank)
        return false;
    note->rank = rank;
    memset(version, 0, sizeof(*version));
    version->when = record->when;
    version->op = record->op;
    version->actor = record->actor;
    return true;
}

static void set_text(char text[WB_NAME_MAX + 1], const char *from, size_t length)
{
    memcpy(text, from, MIN(length, WB_NAME_MAX));
    text[MIN(length, WB_NAME_MAX)] = '\0';
}

static void set_other(struct wb_version *version, struct wb_object dir, const char *name, size_t length)
{
    version->other_dir = dir;
    set_text(version->other, name, length);
}

static void set_place(struct wb_note *note, struct wb_object dir, const char *name, size_t length)
{
    note->version.dir = dir;
    set_text(note->version.name, name, length);
    note->before_dir = dir;
    set_text(note->before_name, name, length);
}

/* The size of a directory has no meaning for users. */
static uint64_t size_of(const struct wb_attrs *attrs)
{
    return S_ISDIR(attrs->mode) ? 0 : attrs->size;
}

/* Operations that create content, and so determine the size. */
static bool sets_size(const struct wb_record *record)
{
    return record->type == WB_REC_DATA ||
           (record->type == WB_REC_ATTR && record->op >= WB_OP_WRITE && record->op <= WB_OP_COPY);
}

static unsigned slot_rank(const struct wb_lineage *lineage)
{
    return lineage->follows ? RANK_FORMER : RANK_NAME;
}

void wb_note_slot(struct wb_note *note, const struct wb_lineage *lineage, const struct wb_record *record,
                  const struct wb_slot *slot)
{
    struct wb_version *version = &note->version;

    if (!begin(note, slot_rank(lineage), record))
        return;
    set_place(note, lineage->dir, lineage->name, strlen(lineage->name));
    if (slot->from_length > 0)
        set_other(version, slot->from_dir, slot->from_name, slot->from_length);
    else if (slot->to_length > 0)
        set_other(version, slot->to_dir, slot->to_name, slot->to_length);
    version->object = slot->present ? slot->object : lineage->bound ? lineage->object : WB_OBJECT_NONE;
    version->existed_before = slot->present;
    version->exists_after = wb_slot_gains(record, slot);
    if (slot->present) {
        version->mode_before = slot->attrs.mode;
        version->size_before = size_of(&slot->attrs);
    }
    /* An object that gets the name by rename keeps its size; a new one has none. */
    if (version->exists_after && lineage->bound &&
        (slot->from_length > 0 || record->op == WB_OP_RESTORE || record->op == WB_OP_FORGET))
        version->size_after = size_of(&lineage->attrs);
}

void wb_note_arrival(struct wb_note *note, const struct wb_lineage *lineage, const struct wb_record *record,
                     const struct wb_slot *slot, const struct wb_attrs *attrs)
{
    struct wb_version *version = &note->version;

    if (!begin(note, slot_rank(lineage), record))
        return;
    set_place(note, slot->from_dir, slot->from_name, slot->from_length);
    set_other(version, lineage->dir, lineage->name, strlen(lineage->name));
    version->object = lineage->object;
    version->existed_before = 1;
    version->exists_after = 1;
    if (attrs) {
        version->mode_before = attrs->mode;
        version->size_before = version->size_after = size_of(attrs);
    }
}

/* Extends the range of a change in several parts: from the first byte of all to the last. */
static void widen(struct wb_version *version, uint64_t offset, uint64_t length)
{
    uint64_t end = length > UINT64_MAX - offset ? UINT64_MAX : offset + length;
    uint64_t old_end = version->offset + version->length;

    if (length == 0 && version->length > 0)
        return;
    if (version->length > 0) {
        offset = MIN(offset, version->offset);
        end = MAX(end, old_end);
    }
    version->offset = offset;
    version->length = end - offset;
}

static void note_gap(struct wb_note *note, const struct wb_lineage *lineage, const struct wb_record *record)
{
    struct wb_version *version = &note->version;

    if (!begin(note, RANK_ATTR, record))
        return;
    if (lineage)
        set_place(note, lineage->dir, lineage->name, strlen(lineage->name));
    version->object = lineage ? lineage->object : WB_OBJECT_NONE;
    version->existed_before = version->exists_after = 1;
    version->is_gap = true;
    version->gap_since = record->gap.since;
    version->gap_open = record->flags & WB_RECORD_OPEN;
    g_strlcpy(version->detail, wb_gap_reason(record->gap.reason), sizeof(version->detail));
    if (lineage)
        version->size_before = version->size_after = size_of(&lineage->attrs);
}

/* An older change that counts together with the one described: the state before both is the state before the older
 * one. */
static void note_joined(struct wb_note *note, const struct wb_record *record)
{
    struct wb_version *version = &note->version;
    const struct wb_attrs *attrs = wb_record_attrs(record);

    if (note->rank == 0 || (version->thinned_since > 0 && version->thinned_since < record->change))
        return;
    version->thinned_since = record->change;
    version->mode_before = attrs->mode;
    version->size_before = size_of(attrs);
    if (record->type == WB_REC_DATA)
        widen(version, record->data.offset, record->data.length);
    else if (record->type == WB_REC_ATTR && record->flags & WB_RECORD_STAGE)
        widen(version, record->attr.offset, record->attr.length);
}

void wb_note_object(struct wb_note *note, const struct wb_lineage *lineage, const struct wb_record *record)
{
    struct wb_version *version = &note->version;
    const struct wb_attrs *attrs = wb_record_attrs(record);
    unsigned rank = record->type == WB_REC_DATA         ? RANK_DATA
                    : record->type == WB_REC_XATTR      ? RANK_XATTR
                    : record->flags & WB_RECORD_STAGE   ? RANK_DATA
                                                        : RANK_ATTR;

    /* The record that ends a stage describes all of it. */
    if (wb_record_is_staged(record))
        return;

    if (record->type == WB_REC_GAP) {
        note_gap(note, lineage, record);
        return;
    }
    if (wb_record_is_joined(record)) {
        note_joined(note, record);
        return;
    }
    /* Two lineages may read one log: then every part is read twice, and the range does not change. */
    if (!begin(note, rank, record)) {
        if (record->type == WB_REC_DATA && note->rank == rank)
            widen(version, record->data.offset, record->data.length);
        return;
    }
    if (lineage)
        set_place(note, lineage->dir, lineage->name, strlen(lineage->name));
    version->object = lineage ? lineage->object : WB_OBJECT_NONE;
    version->existed_before = version->exists_after = 1;
    version->mode_before = attrs->mode;
    version->size_before = version->size_after = size_of(attrs);
    if (sets_size(record)) {
        version->size_after =
            record->type == WB_REC_DATA ? record->data.size_after : record->attr.size_after;
        widen(version, record->type == WB_REC_DATA ? record->data.offset : record->attr.offset,
              record->type == WB_REC_DATA ? record->data.length : record->attr.length);
    }
    if (record->type == WB_REC_XATTR)
        set_text(version->detail, record->xattr.name, record->xattr.name_length);
}

void wb_note_entry(struct wb_note *note, struct wb_object dir, const struct wb_record *record)
{
    struct wb_version *version = &note->version;
    const struct wb_slot *slot = &record->name.slots[0];

    if (!begin(note, RANK_ENTRY, record))
        return;
    /* A rename inside the directory is described from the name that lost the object. */
    if (record->name.count == 2 && slot->from_length > 0 && record->name.slots[1].from_length == 0)
        slot = &record->name.slots[1];
    version->dir = dir;
    set_text(version->name, slot->name, slot->name_length);
    if (slot->to_length > 0)
        set_other(version, slot->to_dir, slot->to_name, slot->to_length);
    else if (slot->from_length > 0)
        set_other(version, slot->from_dir, slot->from_name, slot->from_length);
    version->existed_before = slot->present;
    version->exists_after = wb_slot_gains(record, slot) || record->name.count == 2;
    if (slot->present) {
        version->mode_before = slot->attrs.mode;
        version->size_before = size_of(&slot->attrs);
        if (version->exists_after && record->op == WB_OP_RENAME)
            version->size_after = size_of(&slot->attrs);
    }
}
