/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "history/versions/versions_walk.h"

#include "history/content/thinned.h"
#include <errno.h>
#include <string.h>
#include "wayback/error.h"

/* ---- lineages --------------------------------------------------------------------------------- */

static void strand_close(struct wb_lineage *lineage)
{
    wb_log_cursor_close(&lineage->catalog);
    wb_log_cursor_close(&lineage->undo);
}

void wb_walk_drop(struct wb_walk *walk, unsigned index)
{
    strand_close(&walk->lineages[index]);
    walk->count--;
    memmove(&walk->lineages[index], &walk->lineages[index + 1], (walk->count - index) * sizeof(walk->lineages[0]));
}

/* From now on `object` has the lineage's name. */
static int strand_bind(struct wb_walk *walk, struct wb_lineage *lineage, struct wb_object object,
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

static void strand_unbind(struct wb_lineage *lineage)
{
    wb_log_cursor_close(&lineage->undo);
    lineage->bound = false;
    if (!lineage->follows)
        lineage->object = WB_OBJECT_NONE;
}

static struct wb_lineage *strand_new(struct wb_walk *walk, struct wb_object dir, const char *name, size_t length,
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
    struct wb_lineage *lineage = strand_new(walk, dir, name, strlen(name), follows, before);
    int r;

    if (!lineage)
        return -ENAMETOOLONG;
    r = wb_log_cursor_open(&lineage->catalog, walk->store, dir, WB_FILE_CATALOG);
    if (r < 0)
        return r;
    if (bound)
        return strand_bind(walk, lineage, object, attrs, before);
    lineage->object = object;
    lineage->is_dir = attrs && S_ISDIR(attrs->mode);
    return 0;
}

/*
 * Before `when` the object of `lineage` was at slot->from_*: a following lineage moves there. For the name's own
 * lineage a following one is created, which takes over the undo log at its present position.
 */
static int strand_follow(struct wb_walk *walk, struct wb_lineage *lineage, const struct wb_record *record,
                         const struct wb_slot *slot, struct wb_lineage **ret)
{
    struct wb_lineage *next;
    bool same = wb_object_equal(slot->from_dir, lineage->dir);
    int r = 0;

    next = !lineage->follows && walk->count >= WB_LINEAGES_MAX
               ? NULL
               : strand_new(walk, slot->from_dir, slot->from_name, slot->from_length, true, record->when);
    *ret = next;
    if (!next) {
        strand_unbind(lineage);
        return 0;
    }
    next->bound = true;
    next->is_dir = lineage->is_dir;
    next->object = lineage->bound ? lineage->object : WB_OBJECT_NONE;
    next->attrs = lineage->attrs;
    next->undo = lineage->undo;
    lineage->undo = (struct wb_log_cursor)WB_LOG_CURSOR_INIT;
    strand_unbind(lineage);

    if (same)
        wb_lineage_recognise(next, record);
    r = same ? wb_log_cursor_fork(&next->catalog, &lineage->catalog)
             : wb_log_cursor_open(&next->catalog, walk->store, slot->from_dir, WB_FILE_CATALOG);
    if (r == 0)
        r = wb_lineage_fill_catalog(next);
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
        return r < 0 ? r : strand_bind(walk, lineage, slot->object, &slot->attrs, record->when);
    }
    if (slot->from_length == 0 || record->op == WB_OP_FORGET) {
        wb_note_slot(note, lineage, record, slot);
        strand_unbind(lineage);
        return 0;
    }
    /* Another name of an object that keeps its other one: this name did not exist, but its object did. */
    if (record->op == WB_OP_LINK || record->op == WB_OP_RESTORE)
        wb_note_slot(note, lineage, record, slot);
    r = strand_follow(walk, lineage, record, slot, &former);
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
        return strand_bind(walk, lineage, lineage->object, &slot->attrs, record->when);
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
            strand_unbind(lineage);
        return 0;
    }
    *ended = true;
    r = strand_follow(walk, lineage, record, slot, &former);
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
            wb_note_object(note, lineage, head);
            lineage->attrs = *wb_record_attrs(head);
        }
        lineage->reached = head->when;
        wb_log_cursor_take(&lineage->catalog);
        damaged |= r == WB_DAMAGED;
        if (r < 0)
            return r;
        r = wb_lineage_fill_catalog(lineage);
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
        wb_note_object(note, lineage, head);
        if (wb_record_attrs(head))
            lineage->attrs = *wb_record_attrs(head);
        wb_log_cursor_take(&lineage->undo);
        r = wb_lineage_fill_undo(lineage);
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
            wb_note_entry(note, walk->self, head);
        else
            wb_note_object(note, walk->count > 0 ? &walk->lineages[0] : NULL, head);
        wb_log_cursor_take(&walk->own);
        r = wb_walk_fill_own(walk);
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
        r = wb_lineage_fill_undo(lineage);
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
        strand_close(&walk->lineages[i]);
    walk->count = 0;
    wb_log_cursor_close(&walk->own);
}
