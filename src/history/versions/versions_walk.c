/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "history/versions/versions_walk.h"

#include "history/content/thinned.h"
#include "wayback/error.h"
#include <errno.h>
#include <glib.h>
#include <string.h>
#include <sys/param.h>

/*
 * Selects the records of a log that concern a lineage.
 */

/* ---- records --------------------------------------------------------------------------------- */

const struct wb_attrs *wb_record_attrs(const struct wb_record *record)
{
    switch (record->type) {
    case WB_REC_ATTR:
        return &record->attr.attrs;
    case WB_REC_DATA:
        return &record->data.attrs;
    case WB_REC_XATTR:
        return &record->xattr.attrs;
    default:
        return NULL;
    }
}

/* Whether an ATTR or XATTR of a catalog is about `object`; WB_OP_NONE is not an operation of a user. */
static bool is_about_object(const struct wb_record *record, struct wb_object object)
{
    if (record->op == WB_OP_NONE)
        return false;
    if (record->type == WB_REC_ATTR)
        return wb_object_equal(record->attr.object, object);
    return record->type == WB_REC_XATTR && wb_object_equal(record->xattr.object, object);
}

/* ---- reading the next record ------------------------------------------------------------------ */

static bool in_catalog(const struct wb_lineage *lineage, const struct wb_record *record)
{
    const struct wb_slot *slot;

    if (record->type != WB_REC_NAME)
        return lineage->bound && is_about_object(record, lineage->object);
    slot = wb_record_slot(record, lineage->name);
    if (!slot)
        return false;
    if (lineage->follows && !lineage->bound)
        return slot->present && wb_object_equal(slot->object, lineage->object);
    return true;
}

/*
 * A lineage that begins in the middle of a history reads the change that moved its object away from here: only this
 * record identifies the object and its attributes.
 */
static void lineage_recognise(struct wb_lineage *lineage, const struct wb_record *record)
{
    const struct wb_slot *slot;

    if (!lineage->follows || record->type != WB_REC_NAME || record->when != lineage->before)
        return;
    slot = wb_record_slot(record, lineage->name);
    if (!slot || !slot->present)
        return;
    if (wb_object_is_none(lineage->object))
        lineage->object = slot->object;
    if (wb_object_equal(lineage->object, slot->object))
        lineage->attrs = slot->attrs;
}

/* Reads the next record that concerns the lineage, of either log, or of the directory's own. 0, WB_DAMAGED (call again)
 * or -errno. */
static int lineage_fill_catalog(struct wb_lineage *lineage)
{
    int r;

    while ((r = wb_log_cursor_peek(&lineage->catalog)) == 0) {
        if (lineage->catalog.head.when >= lineage->before)
            lineage_recognise(lineage, &lineage->catalog.head);
        else if (in_catalog(lineage, &lineage->catalog.head))
            return 0;
        wb_log_cursor_take(&lineage->catalog);
    }
    return r == WB_END ? 0 : r;
}

/* Changes that could not be recorded are reported as one change without content. */
static bool is_gap(const struct wb_record *record)
{
    /* An open one is reported by the GAP that ended it. */
    return record->type == WB_REC_GAP && (!(record->flags & WB_RECORD_OPEN) || record->when == WB_WHEN_UNDER_WAY) &&
           record->gap.reason != WB_GAP_ERASED;
}

static int lineage_fill_undo(struct wb_lineage *lineage)
{
    const struct wb_record *head = &lineage->undo.head;
    int r;

    while ((r = wb_log_cursor_peek(&lineage->undo)) == 0) {
        if (head->when < lineage->undo_before && wb_record_attrs(head) && head->op != WB_OP_NONE)
            return 0;
        if (head->when < lineage->undo_before && is_gap(head))
            return 0;
        wb_log_cursor_take(&lineage->undo);
    }
    return r == WB_END ? 0 : r;
}

static int walk_fill_own(struct wb_walk *walk)
{
    const struct wb_record *head = &walk->own.head;
    int r;

    while ((r = wb_log_cursor_peek(&walk->own)) == 0) {
        if (head->when < walk->own_before &&
            (head->type == WB_REC_NAME || is_about_object(head, walk->self) || is_gap(head)))
            return 0;
        wb_log_cursor_take(&walk->own);
    }
    return r == WB_END ? 0 : r;
}

int wb_walk_fill(struct wb_walk *walk)
{
    int r = walk_fill_own(walk);

    for (unsigned i = 0; r == 0 && i < walk->count; i++) {
        r = lineage_fill_catalog(&walk->lineages[i]);
        if (r == 0)
            r = lineage_fill_undo(&walk->lineages[i]);
    }
    return r;
}

int64_t wb_walk_next_name(const struct wb_walk *walk)
{
    int64_t when = walk->own.full ? walk->own.head.when : 0;

    for (unsigned i = 0; i < walk->count; i++) {
        const struct wb_lineage *lineage = &walk->lineages[i];

        if (lineage->catalog.full && lineage->catalog.head.when > when)
            when = lineage->catalog.head.when;
    }
    return when;
}

int64_t wb_walk_next_when(const struct wb_walk *walk)
{
    int64_t when = wb_walk_next_name(walk);

    for (unsigned i = 0; i < walk->count; i++) {
        const struct wb_lineage *lineage = &walk->lineages[i];

        if (lineage->undo.full && lineage->undo.head.when > when)
            when = lineage->undo.head.when;
    }
    return when;
}

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
           (record->type == WB_REC_ATTR && wb_op_has(record->op, WB_EFFECT_CONTENT));
}

static unsigned slot_rank(const struct wb_lineage *lineage)
{
    return lineage->follows ? RANK_FORMER : RANK_NAME;
}

static enum wb_change_kind kind_of_slot(const struct wb_record *record, const struct wb_slot *slot)
{
    if (record->op == WB_OP_RESTORE || record->op == WB_OP_FORGET)
        return WB_KIND_WHOLE;
    if (slot->present)
        return wb_slot_gains(record, slot) ? WB_KIND_REPLACED : WB_KIND_LOST;
    return slot->from_length > 0 ? WB_KIND_ARRIVED : WB_KIND_BORN;
}

/* The object of a slot's name changed, as the lineage sees it (its state is still that after the change). */
static void wb_note_slot(struct wb_note *note, const struct wb_lineage *lineage, const struct wb_record *record,
                         const struct wb_slot *slot)
{
    struct wb_version *version = &note->version;

    if (!begin(note, slot_rank(lineage), record))
        return;
    version->kind = kind_of_slot(record, slot);
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

/* An object came to `lineage`'s name from slot->from_*, where it had `attrs` before. */
static void wb_note_arrival(struct wb_note *note, const struct wb_lineage *lineage, const struct wb_record *record,
                            const struct wb_slot *slot, const struct wb_attrs *attrs)
{
    struct wb_version *version = &note->version;

    if (!begin(note, slot_rank(lineage), record))
        return;
    version->kind = WB_KIND_ARRIVED;
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
    version->kind = WB_KIND_GAP;
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
    if (version->kind != WB_KIND_ATTRIBUTES || sets_size(record))
        version->kind = WB_KIND_WHOLE;
    version->mode_before = attrs->mode;
    version->size_before = size_of(attrs);
    if (record->type == WB_REC_DATA)
        widen(version, record->data.offset, record->data.length);
    else if (record->type == WB_REC_ATTR && record->flags & WB_RECORD_STAGE)
        widen(version, record->attr.offset, record->attr.length);
}

/* Of a change of content with the size and range that are known so far. */
static enum wb_change_kind kind_of_content(const struct wb_version *version, const struct wb_record *record)
{
    if (version->size_after == 0 && version->size_before > 0)
        return WB_KIND_EMPTIED;
    return version->length > 0 || version->size_after != version->size_before ? WB_KIND_CONTENT : WB_KIND_ATTRIBUTES;
}

/* DATA, XATTR or ATTR of the lineage's object, NULL: the root itself. */
static void note_object(struct wb_note *note, const struct wb_lineage *lineage, const struct wb_record *record)
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
        version->kind = kind_of_content(version, record);
        version->begins = record->flags & (WB_RECORD_BEGINS | WB_RECORD_STAGE);
        version->began = record->type == WB_REC_ATTR ? record->attr.begin : 0;
    }
    if (record->type == WB_REC_XATTR)
        set_text(version->detail, record->xattr.name, record->xattr.name_length);
}

/* A change of a directory's entries. */
static void note_entry(struct wb_note *note, struct wb_object dir, const struct wb_record *record)
{
    struct wb_version *version = &note->version;
    const struct wb_slot *slot = &record->name.slots[0];

    if (!begin(note, RANK_ENTRY, record))
        return;
    /* A rename inside the directory is described from the name that lost the object. */
    if (record->name.count == 2 && slot->from_length > 0 && record->name.slots[1].from_length == 0)
        slot = &record->name.slots[1];
    version->kind = WB_KIND_WHOLE;
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

/* ---- lineages --------------------------------------------------------------------------------- */

static void lineage_close(struct wb_lineage *lineage)
{
    wb_log_cursor_close(&lineage->catalog);
    wb_log_cursor_close(&lineage->undo);
}

void wb_walk_drop(struct wb_walk *walk, unsigned index)
{
    lineage_close(&walk->lineages[index]);
    walk->count--;
    memmove(&walk->lineages[index], &walk->lineages[index + 1], (walk->count - index) * sizeof(walk->lineages[0]));
}

/* From now on `object` has the lineage's name. */
static int lineage_bind(struct wb_walk *walk, struct wb_lineage *lineage, struct wb_object object,
                       const struct wb_attrs *attrs, int64_t before)
{
    wb_log_cursor_close(&lineage->undo);
    lineage->bound = true;
    lineage->object = object;
    lineage->attrs = *attrs;
    lineage->is_dir = S_ISDIR(attrs->mode);
    lineage->undo_before = before;
    return lineage->is_dir ? 0 : wb_log_cursor_open(&lineage->undo, walk->store, object, WB_FILE_UNDO);
}

static void lineage_unbind(struct wb_lineage *lineage)
{
    wb_log_cursor_close(&lineage->undo);
    lineage->bound = false;
    if (!lineage->follows)
        lineage->object = WB_OBJECT_NONE;
}

static struct wb_lineage *lineage_new(struct wb_walk *walk, struct wb_object dir, const char *name, size_t length,
                                     bool follows, int64_t before)
{
    struct wb_lineage *lineage;

    /* A following lineage that moves is counted twice until the change is complete. */
    if (walk->count == 2 * WB_LINEAGES_MAX || length > WB_NAME_MAX)
        return NULL;
    lineage = &walk->lineages[walk->count++];
    *lineage = (struct wb_lineage){.dir = dir,
                                   .follows = follows,
                                   .before = before,
                                   .undo_before = before,
                                   .reached = before,
                                   .catalog = WB_LOG_CURSOR_INIT,
                                   .undo = WB_LOG_CURSOR_INIT};
    memcpy(lineage->name, name, length);
    return lineage;
}

int wb_walk_add(struct wb_walk *walk, struct wb_object dir, const char *name, bool follows,
                struct wb_object object, const struct wb_attrs *attrs, bool bound, int64_t before)
{
    struct wb_lineage *lineage = lineage_new(walk, dir, name, strlen(name), follows, before);
    int r;

    if (!lineage)
        return -ENAMETOOLONG;
    r = wb_log_cursor_open(&lineage->catalog, walk->store, dir, WB_FILE_CATALOG);
    if (r < 0)
        return r;
    if (bound)
        return lineage_bind(walk, lineage, object, attrs, before);
    lineage->object = object;
    lineage->is_dir = attrs && S_ISDIR(attrs->mode);
    return 0;
}

/*
 * Before `when` the object of `lineage` was at slot->from_*: a following lineage moves there. For the name's own
 * lineage a following one is created, which takes over the undo log at its present position.
 */
static int lineage_follow(struct wb_walk *walk, struct wb_lineage *lineage, const struct wb_record *record,
                         const struct wb_slot *slot, struct wb_lineage **ret)
{
    struct wb_lineage *next;
    bool same = wb_object_equal(slot->from_dir, lineage->dir);
    int r = 0;

    next = !lineage->follows && walk->count >= WB_LINEAGES_MAX
               ? NULL
               : lineage_new(walk, slot->from_dir, slot->from_name, slot->from_length, true, record->when);
    *ret = next;
    if (!next) {
        lineage_unbind(lineage);
        return 0;
    }
    next->bound = true;
    next->is_dir = lineage->is_dir;
    next->object = lineage->bound ? lineage->object : WB_OBJECT_NONE;
    next->attrs = lineage->attrs;
    next->undo = lineage->undo;
    lineage->undo = (struct wb_log_cursor)WB_LOG_CURSOR_INIT;
    lineage_unbind(lineage);

    if (same)
        lineage_recognise(next, record);
    r = same ? wb_log_cursor_fork(&next->catalog, &lineage->catalog)
             : wb_log_cursor_open(&next->catalog, walk->store, slot->from_dir, WB_FILE_CATALOG);
    if (r == 0)
        r = lineage_fill_catalog(next);
    if ((r == 0 || r == WB_DAMAGED) && wb_object_is_none(next->object)) {
        wb_walk_drop(walk, walk->count - 1);
        *ret = NULL;
    } else if (r >= 0 && next->undo.fd < 0 && !next->is_dir) {
        /* The object was identified only just now. */
        next->is_dir = S_ISDIR(next->attrs.mode);
        if (!next->is_dir)
            r = wb_log_cursor_open(&next->undo, walk->store, next->object, WB_FILE_UNDO);
    }
    return r;
}

/* ---- one change ------------------------------------------------------------------------------ */

/* Finds since when a file that is not kept had the name. */
static int note_since(const struct wb_lineage *lineage, const struct wb_record *record, const struct wb_slot *slot,
                      struct wb_note *note)
{
    const struct wb_slot *other = record->name.count == 2 ? &record->name.slots[slot == &record->name.slots[0]] : NULL;

    /* If both slots have a file, the record does not describe another one. */
    if (!(record->flags & WB_RECORD_THINNED) || note->version.when != record->when ||
        (other && other->present && slot->unbind == WB_UNBIND_RENAMED))
        return 0;
    return wb_thinned_since(lineage->catalog.fd, record, &note->version.thinned_since);
}

/* The name's own lineage: continues with the object that was there before, or with none. */
static int step_name(struct wb_walk *walk, struct wb_lineage *lineage, const struct wb_record *record,
                     const struct wb_slot *slot, struct wb_note *note)
{
    struct wb_lineage *former = NULL;
    int r = 0;

    if (slot->present) {
        wb_note_slot(note, lineage, record, slot);
        r = note_since(lineage, record, slot, note);
        return r < 0 ? r : lineage_bind(walk, lineage, slot->object, &slot->attrs, record->when);
    }
    if (slot->from_length == 0 || record->op == WB_OP_FORGET) {
        wb_note_slot(note, lineage, record, slot);
        lineage_unbind(lineage);
        return 0;
    }
    /* Another name of an object that keeps its other one: this name did not exist, but its object did. */
    if (record->op == WB_OP_LINK || record->op == WB_OP_RESTORE)
        wb_note_slot(note, lineage, record, slot);
    r = lineage_follow(walk, lineage, record, slot, &former);
    if (r >= 0)
        wb_note_arrival(note, lineage, record, slot, former ? &former->attrs : NULL);
    return r;
}

/* A following lineage; *ended if the object has no earlier history. */
static int step_object(struct wb_walk *walk, struct wb_lineage *lineage, const struct wb_record *record,
                       const struct wb_slot *slot, struct wb_note *note, bool *ended)
{
    struct wb_lineage *former = NULL;
    int r;

    if (slot->present && wb_object_equal(slot->object, lineage->object)) {
        wb_note_slot(note, lineage, record, slot);
        return lineage_bind(walk, lineage, lineage->object, &slot->attrs, record->when);
    }
    if (!wb_slot_gains(record, slot)) {
        /* Another object lost the name: so this one never had it. */
        *ended = true;
        return 0;
    }
    if (slot->from_length == 0) {
        wb_note_slot(note, lineage, record, slot);
        /* From the graveyard: it lost this name earlier, and that record is still to be read. */
        *ended = record->op != WB_OP_RESTORE;
        if (!*ended)
            lineage_unbind(lineage);
        return 0;
    }
    *ended = true;
    r = lineage_follow(walk, lineage, record, slot, &former);
    if (r >= 0)
        wb_note_arrival(note, lineage, record, slot, former ? &former->attrs : NULL);
    return r;
}

static int step_catalog(struct wb_walk *walk, struct wb_lineage *lineage, int64_t when, struct wb_note *note,
                        bool *ended)
{
    struct wb_record *head = &lineage->catalog.head;
    bool damaged = false;
    int r;

    while (lineage->catalog.full && head->when == when && !*ended) {
        r = 0;
        if (head->type == WB_REC_NAME) {
            const struct wb_slot *slot = wb_record_slot(head, lineage->name);

            r = lineage->follows ? step_object(walk, lineage, head, slot, note, ended)
                                 : step_name(walk, lineage, head, slot, note);
        } else {
            note_object(note, lineage, head);
            lineage->attrs = *wb_record_attrs(head);
        }
        lineage->reached = head->when;
        wb_log_cursor_take(&lineage->catalog);
        damaged |= r == WB_DAMAGED;
        if (r < 0)
            return r;
        r = lineage_fill_catalog(lineage);
        damaged |= r == WB_DAMAGED;
        if (r < 0)
            return r;
    }
    return damaged ? WB_DAMAGED : 0;
}

static int step_undo(struct wb_lineage *lineage, int64_t when, struct wb_note *note)
{
    struct wb_record *head = &lineage->undo.head;
    bool damaged = false;
    int r;

    while (lineage->undo.full && head->when == when) {
        lineage->undo_reached = when;
        note_object(note, lineage, head);
        if (wb_record_attrs(head))
            lineage->attrs = *wb_record_attrs(head);
        wb_log_cursor_take(&lineage->undo);
        r = lineage_fill_undo(lineage);
        if (r < 0)
            return r;
        damaged |= r == WB_DAMAGED;
    }
    return damaged ? WB_DAMAGED : 0;
}

static int step_own(struct wb_walk *walk, int64_t when, struct wb_note *note)
{
    struct wb_record *head = &walk->own.head;
    bool damaged = false;
    int r;

    while (walk->own.full && head->when == when) {
        if (head->type == WB_REC_NAME)
            note_entry(note, walk->self, head);
        else
            note_object(note, walk->count > 0 ? &walk->lineages[0] : NULL, head);
        wb_log_cursor_take(&walk->own);
        r = walk_fill_own(walk);
        if (r < 0)
            return r;
        damaged |= r == WB_DAMAGED;
    }
    return damaged ? WB_DAMAGED : 0;
}

struct passing {
    struct wb_lineage *lineage;
    int64_t when;
};

/* Whether all records that an INDEX covers are passed over. */
static bool passes(const struct wb_record *index, void *data)
{
    struct passing *passing = data;
    struct wb_lineage *lineage = passing->lineage;

    if (index->index.first < passing->when)
        return false;
    if (index->index.attrs_when > 0 && index->index.attrs_when < lineage->undo_before)
        lineage->attrs = index->index.attrs;
    return true;
}

static int pass_undo(struct wb_lineage *lineage, int64_t when)
{
    struct passing passing = {lineage, when};
    const struct wb_record *head = &lineage->undo.head;
    bool damaged = false;
    int r = 0;

    lineage->undo.reader.pass = passes;
    lineage->undo.reader.pass_data = &passing;
    while (r >= 0 && lineage->undo.full && head->when >= when) {
        if (wb_record_attrs(head))
            lineage->attrs = *wb_record_attrs(head);
        wb_log_cursor_take(&lineage->undo);
        r = lineage_fill_undo(lineage);
        damaged |= r == WB_DAMAGED;
    }
    lineage->undo.reader.pass = NULL;
    return r < 0 ? r : damaged ? WB_DAMAGED : 0;
}

int wb_walk_pass_undo(struct wb_walk *walk, int64_t when)
{
    int r = 0;

    for (unsigned i = 0; r >= 0 && i < walk->count; i++)
        r = pass_undo(&walk->lineages[i], when);
    return r < 0 ? r : 0;
}

/* An object that returned to a former name has two lineages at the same place, which would report everything twice. */
static void drop_doubles(struct wb_walk *walk)
{
    for (unsigned i = 0; i < walk->count; i++) {
        for (unsigned k = walk->count - 1; k > i; k--) {
            const struct wb_lineage *a = &walk->lineages[i], *b = &walk->lineages[k];

            if (b->follows && a->bound == b->bound && wb_object_equal(a->object, b->object) &&
                wb_object_equal(a->dir, b->dir) && strcmp(a->name, b->name) == 0)
                wb_walk_drop(walk, k);
        }
    }
}

int wb_walk_step(struct wb_walk *walk, int64_t when, struct wb_note *note)
{
    bool ended[2 * WB_LINEAGES_MAX] = {false};
    unsigned count = walk->count;
    bool damaged = false;
    int r = step_own(walk, when, note);

    /* Attributes and content first: a change of names replaces the undo log that is read. */
    for (unsigned i = 0; r >= 0 && i < count; i++) {
        damaged |= r == WB_DAMAGED;
        r = step_undo(&walk->lineages[i], when, note);
    }
    for (unsigned i = 0; r >= 0 && i < count; i++) {
        damaged |= r == WB_DAMAGED;
        r = step_catalog(walk, &walk->lineages[i], when, note, &ended[i]);
    }
    if (r < 0)
        return r;
    damaged |= r == WB_DAMAGED;
    for (unsigned i = count; i-- > 0;) {
        if (ended[i])
            wb_walk_drop(walk, i);
    }
    drop_doubles(walk);
    return damaged ? WB_DAMAGED : 0;
}

void wb_walk_deinit(struct wb_walk *walk)
{
    for (unsigned i = 0; i < walk->count; i++)
        lineage_close(&walk->lineages[i]);
    walk->count = 0;
    wb_log_cursor_close(&walk->own);
}
