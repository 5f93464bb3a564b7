/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "history/versions/versions_walk.h"

#include "history/content/thinned.h"
#include <errno.h>
#include <string.h>
#include "wayback/error.h"

/* ---- strands --------------------------------------------------------------------------------- */

static void strand_close(struct wb_strand *strand)
{
    wb_source_close(&strand->catalog);
    wb_source_close(&strand->undo);
}

void wb_walk_drop(struct wb_walk *walk, unsigned index)
{
    strand_close(&walk->strands[index]);
    walk->count--;
    memmove(&walk->strands[index], &walk->strands[index + 1],
            (walk->count - index) * sizeof(walk->strands[0]));
}

/* From now on `object` has the strand's name. */
static int strand_bind(struct wb_walk *walk, struct wb_strand *strand, struct wb_object object,
                       const struct wb_attrs *attrs, int64_t before)
{
    wb_source_close(&strand->undo);
    strand->bound = true;
    strand->object = object;
    strand->attrs = *attrs;
    strand->is_dir = S_ISDIR(attrs->mode);
    strand->undo_before = before;
    return strand->is_dir ? 0 : wb_source_open(&strand->undo, walk->store, object, WB_FILE_UNDO);
}

static void strand_unbind(struct wb_strand *strand)
{
    wb_source_close(&strand->undo);
    strand->bound = false;
    if (!strand->follows)
        strand->object = WB_OBJECT_NONE;
}

static struct wb_strand *strand_new(struct wb_walk *walk, struct wb_object dir, const char *name,
                                    size_t length, bool follows, int64_t before)
{
    struct wb_strand *strand;

    /* A following strand that moves is counted twice until the change is complete. */
    if (walk->count == 2 * WB_STRANDS_MAX || length > WB_NAME_MAX)
        return NULL;
    strand = &walk->strands[walk->count++];
    *strand = (struct wb_strand){.dir = dir,
                                 .follows = follows,
                                 .before = before,
                                 .undo_before = before,
                                 .reached = before,
                                 .catalog = WB_SOURCE_INIT,
                                 .undo = WB_SOURCE_INIT};
    memcpy(strand->name, name, length);
    return strand;
}

int wb_walk_add(struct wb_walk *walk, struct wb_object dir, const char *name, bool follows,
                struct wb_object object, const struct wb_attrs *attrs, bool bound, int64_t before)
{
    struct wb_strand *strand = strand_new(walk, dir, name, strlen(name), follows, before);
    int r;

    if (!strand)
        return -ENAMETOOLONG;
    r = wb_source_open(&strand->catalog, walk->store, dir, WB_FILE_CATALOG);
    if (r < 0)
        return r;
    if (bound)
        return strand_bind(walk, strand, object, attrs, before);
    strand->object = object;
    strand->is_dir = attrs && S_ISDIR(attrs->mode);
    return 0;
}

/*
 * Before `when` the object of `strand` was at slot->from_*: a following strand moves there. For the name's own strand a
 * following one is created, which takes over the undo log at its present position.
 */
static int strand_follow(struct wb_walk *walk, struct wb_strand *strand, const struct wb_record *record,
                         const struct wb_slot *slot, struct wb_strand **ret)
{
    struct wb_strand *next;
    bool same = wb_object_equal(slot->from_dir, strand->dir);
    int r = 0;

    next = !strand->follows && walk->count >= WB_STRANDS_MAX
               ? NULL
               : strand_new(walk, slot->from_dir, slot->from_name, slot->from_length, true, record->when);
    *ret = next;
    if (!next) {
        strand_unbind(strand);
        return 0;
    }
    next->bound = true;
    next->is_dir = strand->is_dir;
    next->object = strand->bound ? strand->object : WB_OBJECT_NONE;
    next->attrs = strand->attrs;
    next->undo = strand->undo;
    strand->undo = (struct wb_source)WB_SOURCE_INIT;
    strand_unbind(strand);

    if (same)
        wb_strand_recognise(next, record);
    r = same ? wb_source_fork(&next->catalog, &strand->catalog)
             : wb_source_open(&next->catalog, walk->store, slot->from_dir, WB_FILE_CATALOG);
    if (r == 0)
        r = wb_strand_fill_catalog(next);
    if ((r == 0 || r == WB_DAMAGED) && wb_object_is_none(next->object)) {
        wb_walk_drop(walk, walk->count - 1);
        *ret = NULL;
    } else if (r >= 0 && next->undo.fd < 0 && !next->is_dir) {
        /* The object was identified only just now. */
        next->is_dir = S_ISDIR(next->attrs.mode);
        if (!next->is_dir)
            r = wb_source_open(&next->undo, walk->store, next->object, WB_FILE_UNDO);
    }
    return r;
}

/* ---- one change ------------------------------------------------------------------------------ */

/* Finds since when a file that is not kept had the name. */
static int note_since(const struct wb_strand *strand, const struct wb_record *record, const struct wb_slot *slot,
                      struct wb_note *note)
{
    const struct wb_slot *other = record->name.count == 2 ? &record->name.slots[slot == &record->name.slots[0]] : NULL;

    /* If both slots have a file, the record does not describe another one. */
    if (!(record->flags & WB_RECORD_THINNED) || note->version.when != record->when ||
        (other && other->present && slot->fate == WB_FATE_MOVED))
        return 0;
    return wb_thinned_since(strand->catalog.fd, record, &note->version.thinned_since);
}

/* The name's own strand: continues with the object that was there before, or with none. */
static int step_name(struct wb_walk *walk, struct wb_strand *strand, const struct wb_record *record,
                     const struct wb_slot *slot, struct wb_note *note)
{
    struct wb_strand *former = NULL;
    int r = 0;

    if (slot->present) {
        wb_note_slot(note, strand, record, slot);
        r = note_since(strand, record, slot, note);
        return r < 0 ? r : strand_bind(walk, strand, slot->object, &slot->attrs, record->when);
    }
    if (slot->from_length == 0 || record->op == WB_OP_FORGET) {
        wb_note_slot(note, strand, record, slot);
        strand_unbind(strand);
        return 0;
    }
    /* Another name of an object that keeps its other one: this name did not exist, but its object did. */
    if (record->op == WB_OP_LINK || record->op == WB_OP_RESTORE)
        wb_note_slot(note, strand, record, slot);
    r = strand_follow(walk, strand, record, slot, &former);
    if (r >= 0)
        wb_note_arrival(note, strand, record, slot, former ? &former->attrs : NULL);
    return r;
}

/* A following strand; *ended if the object has no earlier history. */
static int step_object(struct wb_walk *walk, struct wb_strand *strand, const struct wb_record *record,
                       const struct wb_slot *slot, struct wb_note *note, bool *ended)
{
    struct wb_strand *former = NULL;
    int r;

    if (slot->present && wb_object_equal(slot->object, strand->object)) {
        wb_note_slot(note, strand, record, slot);
        return strand_bind(walk, strand, strand->object, &slot->attrs, record->when);
    }
    if (!wb_slot_gains(record, slot)) {
        /* Another object lost the name: so this one never had it. */
        *ended = true;
        return 0;
    }
    if (slot->from_length == 0) {
        wb_note_slot(note, strand, record, slot);
        /* From the graveyard: it lost this name earlier, and that record is still to be read. */
        *ended = record->op != WB_OP_RESTORE;
        if (!*ended)
            strand_unbind(strand);
        return 0;
    }
    *ended = true;
    r = strand_follow(walk, strand, record, slot, &former);
    if (r >= 0)
        wb_note_arrival(note, strand, record, slot, former ? &former->attrs : NULL);
    return r;
}

static int step_catalog(struct wb_walk *walk, struct wb_strand *strand, int64_t when,
                        struct wb_note *note, bool *ended)
{
    struct wb_record *head = &strand->catalog.head;
    bool damaged = false;
    int r;

    while (strand->catalog.full && head->when == when && !*ended) {
        r = 0;
        if (head->type == WB_REC_NAME) {
            const struct wb_slot *slot = wb_record_slot(head, strand->name);

            r = strand->follows ? step_object(walk, strand, head, slot, note, ended)
                                : step_name(walk, strand, head, slot, note);
        } else {
            wb_note_object(note, strand, head);
            strand->attrs = *wb_record_attrs(head);
        }
        strand->reached = head->when;
        wb_source_take(&strand->catalog);
        damaged |= r == WB_DAMAGED;
        if (r < 0)
            return r;
        r = wb_strand_fill_catalog(strand);
        damaged |= r == WB_DAMAGED;
        if (r < 0)
            return r;
    }
    return damaged ? WB_DAMAGED : 0;
}

static int step_undo(struct wb_strand *strand, int64_t when, struct wb_note *note)
{
    struct wb_record *head = &strand->undo.head;
    bool damaged = false;
    int r;

    while (strand->undo.full && head->when == when) {
        strand->undo_reached = when;
        wb_note_object(note, strand, head);
        if (wb_record_attrs(head))
            strand->attrs = *wb_record_attrs(head);
        wb_source_take(&strand->undo);
        r = wb_strand_fill_undo(strand);
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
            wb_note_object(note, walk->count > 0 ? &walk->strands[0] : NULL, head);
        wb_source_take(&walk->own);
        r = wb_walk_fill_own(walk);
        if (r < 0)
            return r;
        damaged |= r == WB_DAMAGED;
    }
    return damaged ? WB_DAMAGED : 0;
}

struct passing {
    struct wb_strand *strand;
    int64_t when;
};

/* Whether all records that an INDEX covers are passed over. */
static bool passes(const struct wb_record *index, void *data)
{
    struct passing *passing = data;
    struct wb_strand *strand = passing->strand;

    if (index->index.first < passing->when)
        return false;
    if (index->index.told > 0 && index->index.told < strand->undo_before)
        strand->attrs = index->index.attrs;
    return true;
}

static int pass_undo(struct wb_strand *strand, int64_t when)
{
    struct passing passing = {strand, when};
    const struct wb_record *head = &strand->undo.head;
    bool damaged = false;
    int r = 0;

    strand->undo.reader.pass = passes;
    strand->undo.reader.pass_data = &passing;
    while (r >= 0 && strand->undo.full && head->when >= when) {
        if (wb_record_attrs(head))
            strand->attrs = *wb_record_attrs(head);
        wb_source_take(&strand->undo);
        r = wb_strand_fill_undo(strand);
        damaged |= r == WB_DAMAGED;
    }
    strand->undo.reader.pass = NULL;
    return r < 0 ? r : damaged ? WB_DAMAGED : 0;
}

int wb_walk_pass_undo(struct wb_walk *walk, int64_t when)
{
    int r = 0;

    for (unsigned i = 0; r >= 0 && i < walk->count; i++)
        r = pass_undo(&walk->strands[i], when);
    return r < 0 ? r : 0;
}

/* An object that returned to a former name has two strands at the same place, which would report everything twice. */
static void drop_doubles(struct wb_walk *walk)
{
    for (unsigned i = 0; i < walk->count; i++) {
        for (unsigned k = walk->count - 1; k > i; k--) {
            const struct wb_strand *a = &walk->strands[i], *b = &walk->strands[k];

            if (b->follows && a->bound == b->bound && wb_object_equal(a->object, b->object) &&
                wb_object_equal(a->dir, b->dir) && strcmp(a->name, b->name) == 0)
                wb_walk_drop(walk, k);
        }
    }
}

int wb_walk_step(struct wb_walk *walk, int64_t when, struct wb_note *note)
{
    bool ended[2 * WB_STRANDS_MAX] = {false};
    unsigned count = walk->count;
    bool damaged = false;
    int r = step_own(walk, when, note);

    /* Attributes and content first: a change of names replaces the undo log that is read. */
    for (unsigned i = 0; r >= 0 && i < count; i++) {
        damaged |= r == WB_DAMAGED;
        r = step_undo(&walk->strands[i], when, note);
    }
    for (unsigned i = 0; r >= 0 && i < count; i++) {
        damaged |= r == WB_DAMAGED;
        r = step_catalog(walk, &walk->strands[i], when, note, &ended[i]);
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
        strand_close(&walk->strands[i]);
    walk->count = 0;
    wb_source_close(&walk->own);
}
