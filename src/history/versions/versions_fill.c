/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Selects the records of a log that concern a strand.
 */
#include "history/versions/versions_walk.h"

#include <errno.h>
#include <string.h>
#include "wayback/error.h"

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

static bool in_catalog(const struct wb_strand *strand, const struct wb_record *record)
{
    const struct wb_slot *slot;

    if (record->type != WB_REC_NAME)
        return strand->bound && is_about_object(record, strand->object);
    slot = wb_record_slot(record, strand->name);
    if (!slot)
        return false;
    if (strand->follows && !strand->bound)
        return slot->present && wb_object_equal(slot->object, strand->object);
    return true;
}

/*
 * A strand that begins in the middle of a history reads the change that moved its object away from here: only this
 * record identifies the object and its attributes.
 */
void wb_strand_recognise(struct wb_strand *strand, const struct wb_record *record)
{
    const struct wb_slot *slot;

    if (!strand->follows || record->type != WB_REC_NAME || record->when != strand->before)
        return;
    slot = wb_record_slot(record, strand->name);
    if (!slot || !slot->present)
        return;
    if (wb_object_is_none(strand->object))
        strand->object = slot->object;
    if (wb_object_equal(strand->object, slot->object))
        strand->attrs = slot->attrs;
}

int wb_strand_fill_catalog(struct wb_strand *strand)
{
    int r;

    while ((r = wb_source_peek(&strand->catalog)) == 0) {
        if (strand->catalog.head.when >= strand->before)
            wb_strand_recognise(strand, &strand->catalog.head);
        else if (in_catalog(strand, &strand->catalog.head))
            return 0;
        wb_source_take(&strand->catalog);
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

int wb_strand_fill_undo(struct wb_strand *strand)
{
    const struct wb_record *head = &strand->undo.head;
    int r;

    while ((r = wb_source_peek(&strand->undo)) == 0) {
        if (head->when < strand->undo_before && wb_record_attrs(head) && head->op != WB_OP_NONE)
            return 0;
        if (head->when < strand->undo_before && is_gap(head))
            return 0;
        wb_source_take(&strand->undo);
    }
    return r == WB_END ? 0 : r;
}

int wb_walk_fill_own(struct wb_walk *walk)
{
    const struct wb_record *head = &walk->own.head;
    int r;

    while ((r = wb_source_peek(&walk->own)) == 0) {
        if (head->when < walk->own_before &&
            (head->type == WB_REC_NAME || is_about_object(head, walk->self) || is_gap(head)))
            return 0;
        wb_source_take(&walk->own);
    }
    return r == WB_END ? 0 : r;
}

int wb_walk_fill(struct wb_walk *walk)
{
    int r = wb_walk_fill_own(walk);

    for (unsigned i = 0; r == 0 && i < walk->count; i++) {
        r = wb_strand_fill_catalog(&walk->strands[i]);
        if (r == 0)
            r = wb_strand_fill_undo(&walk->strands[i]);
    }
    return r;
}

int64_t wb_walk_next_name(const struct wb_walk *walk)
{
    int64_t when = walk->own.full ? walk->own.head.when : 0;

    for (unsigned i = 0; i < walk->count; i++) {
        const struct wb_strand *strand = &walk->strands[i];

        if (strand->catalog.full && strand->catalog.head.when > when)
            when = strand->catalog.head.when;
    }
    return when;
}

int64_t wb_walk_next_when(const struct wb_walk *walk)
{
    int64_t when = wb_walk_next_name(walk);

    for (unsigned i = 0; i < walk->count; i++) {
        const struct wb_strand *strand = &walk->strands[i];

        if (strand->undo.full && strand->undo.head.when > when)
            when = strand->undo.head.when;
    }
    return when;
}
