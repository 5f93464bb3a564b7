/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Selects the records of a log that concern a lineage.
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
void wb_lineage_recognise(struct wb_lineage *lineage, const struct wb_record *record)
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

int wb_lineage_fill_catalog(struct wb_lineage *lineage)
{
    int r;

    while ((r = wb_log_cursor_peek(&lineage->catalog)) == 0) {
        if (lineage->catalog.head.when >= lineage->before)
            wb_lineage_recognise(lineage, &lineage->catalog.head);
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

int wb_lineage_fill_undo(struct wb_lineage *lineage)
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

int wb_walk_fill_own(struct wb_walk *walk)
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
    int r = wb_walk_fill_own(walk);

    for (unsigned i = 0; r == 0 && i < walk->count; i++) {
        r = wb_lineage_fill_catalog(&walk->lineages[i]);
        if (r == 0)
            r = wb_lineage_fill_undo(&walk->lineages[i]);
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
