/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Walking a log backward as replay wants it: through INDEX records, without what was aborted.
 *
 * An INDEX is a help and no more. Where it is met, the copies it holds stand for the records before it: the walk
 * takes them from memory and moves its position down all the same, so that it goes on in the
 * log itself, as if there were no INDEX, wherever a copy is not what it should be.
 */
#include "store/log/log.h"

#include "wayback/error.h"
#include <errno.h>
#include <glib.h>

/* Forgets the targets that lie behind: `when` never rises on the way back. */
static void skip_passed(struct wb_log_skip *skip, int64_t when)
{
    unsigned kept = 0;

    for (unsigned i = 0; i < skip->count; i++)
        if (skip->targets[i] <= when)
            skip->targets[kept++] = skip->targets[i];
    skip->count = kept;
}

static bool skip_has(const struct wb_log_skip *skip, int64_t when)
{
    for (unsigned i = 0; i < skip->count; i++)
        if (skip->targets[i] == when)
            return true;
    return false;
}

/* Whether the copies are those of all records in [index.from, offset of the INDEX); makes them readable. */
static bool copies_fit(uint8_t *copies, size_t length, const struct wb_record *record)
{
    uint64_t covered = 0;
    uint32_t body, total, count = 0;

    for (size_t at = 0; at < length; at += WB_COPY_SIZE(body), count++, covered += total)
        if (wb_record_uncopy(copies + at, length - at, &body, &total) < 0)
            return false;
    return record->index.from < record->offset && covered == record->offset - record->index.from &&
           count == record->index.count;
}

/* Brings the copies of an INDEX into memory, if they can be used. */
static void load_copies(struct wb_log_reader *reader, const struct wb_record *record)
{
    size_t length = record->payload_length;

    if (length > reader->copies_room) {
        g_free(reader->copies);
        reader->copies = g_try_malloc(length);
        reader->copies_room = reader->copies ? length : 0;
    }
    if (length == 0 || !reader->copies || wb_log_bytes_payload(&reader->bytes, record, reader->copies) < 0 ||
        !copies_fit(reader->copies, length, record))
        return;
    reader->copies_at = 0;
    reader->copies_end = length;
}

/* The walk stands before an INDEX: what of it can be used? */
static void use_index(struct wb_log_reader *reader, struct wb_log_skip *skip, const struct wb_record *record)
{
    const struct wb_rec_index *index = &record->index;
    const uint32_t counted = 1u << WB_REC_DATA | 1u << WB_REC_ATTR | 1u << WB_REC_XATTR;
    const uint32_t exact = WB_INDEX_COALESCED | 1u << WB_REC_ABORT | 1u << WB_REC_GAP | 1u << WB_REC_FILLER;

    if (index->from >= record->offset)
        return;
    /* Usually an INDEX comes next again: no window to be filled with payloads. */
    reader->window_size = 0;
    reader->known_from = index->previous;
    reader->known_to = index->previous ? index->from : 0;
    skip_passed(skip, index->last);
    if (reader->pass && skip->count == 0 && !(index->types & exact) && reader->pass(record, reader->pass_data)) {
        reader->position = index->from;
        /* What newer ones count together with was among it. */
        if (index->types & counted)
            skip->joined_when = 0;
    } else {
        load_copies(reader, record);
    }
}

/* The next record from memory: 0, or WB_END where the log is to be read on. */
static int prev_copy(struct wb_log_reader *reader, struct wb_record *ret)
{
    size_t left = reader->copies_end - reader->copies_at;
    const uint8_t *copy;

    if (left == 0)
        return WB_END;
    copy = reader->copies + reader->copies_at;
    if (wb_record_decode(copy, left, 0, ret) < 0 || ret->total > reader->position) {
        reader->copies_at = reader->copies_end;
        return WB_END;
    }
    reader->copies_at += WB_COPY_SIZE(ret->body_length);
    reader->position -= ret->total;
    ret->offset += reader->position;
    ret->payload_offset += reader->position;
    return 0;
}

/* The record before the position, from wherever it is had; an INDEX is made use of on the way. */
static int prev_record(struct wb_log_reader *reader, struct wb_log_skip *skip, struct wb_record *ret)
{
    int r;

    /* Bounded: every turn moves the position down. */
    for (;;) {
        if (prev_copy(reader, ret) == 0) {
            if (ret->type != WB_REC_INDEX)
                return 0;
            continue;
        }
        r = wb_log_reader_prev(reader, ret);
        if (r == 0 && ret->type == WB_REC_INDEX) {
            use_index(reader, skip, ret);
            continue;
        }
        /* A damaged INDEX that a later one vouches for costs nothing. */
        if (r != WB_DAMAGED || reader->known_to == 0 || reader->damaged_to != reader->known_to)
            return r;
        reader->position = reader->known_from;
    }
}

/*
 * Records of a stage count from its end. The end comes after all of them, hence is met before. Where an INDEX
 * made it pass unseen it is later than what is looked for, and so then are they.
 */
static void place_stage(struct wb_log_skip *skip, struct wb_record *record)
{
    /*
     * The end of a stage that was under way when the power failed may be among the lost records. It was after all known
     * records of the stage, and before any later one.
     */
    if (record->type == WB_REC_GAP && wb_gap_is_partial(record->gap.reason))
        skip->stage_cut = MAX(record->gap.since, 1);
    if (!(record->flags & WB_RECORD_STAGE))
        return;
    if (record->type == WB_REC_ATTR) {
        skip->stage_begin = record->attr.begin;
        skip->stage_end = record->when;
        skip->stage_cut = 0;
    } else if (record->type == WB_REC_DATA) {
        bool ended = skip->stage_end > 0 && record->written >= skip->stage_begin;

        if (!ended && skip->stage_cut > 0) {
            skip->stage_cut = MAX(skip->stage_cut, record->written);
            record->when = record->change = skip->stage_cut;
            return;
        }
        record->when = record->change = ended ? skip->stage_end : WB_WHEN_UNDER_WAY;
    }
}

/*
 * What counts together counts from the newest on. The flag is met before what it is about, and says the same in
 * every record of its change; a change after which it was not met begins anew. All of a stage is one change.
 */
static void place_joined(struct wb_log_skip *skip, struct wb_record *record)
{
    if (record->type != WB_REC_DATA && record->type != WB_REC_ATTR && record->type != WB_REC_XATTR)
        return;
    if (skip->joined_when > 0 && skip->joined_to == 0 && record->change != skip->joined_by)
        skip->joined_to = record->change;
    if (skip->joined_when > 0 && (record->change == skip->joined_by || record->change == skip->joined_to))
        record->when = skip->joined_when;
    else
        skip->joined_when = 0;
    if (!(record->flags & WB_RECORD_COALESCED) || record->change == skip->joined_by)
        return;
    skip->joined_when = record->when;
    skip->joined_by = record->change;
    skip->joined_to = 0;
}

int wb_log_skip_judge(struct wb_log_skip *skip, struct wb_record *record)
{
    skip_passed(skip, record->when);
    if (record->type == WB_REC_ABORT) {
        if (skip_has(skip, record->abort.target))
            return 0;
        /* No more changes are ever under way at once, so no more can be outstanding. */
        if (skip->count == G_N_ELEMENTS(skip->targets))
            return -EBADMSG;
        skip->targets[skip->count++] = record->abort.target;
        return 0;
    }
    if (skip_has(skip, record->when))
        return 0;
    place_stage(skip, record);
    place_joined(skip, record);
    return 1;
}

int wb_log_reader_prev_effective(struct wb_log_reader *reader, struct wb_log_skip *skip,
                                 struct wb_record *ret)
{
    int r;

    while ((r = prev_record(reader, skip, ret)) == 0) {
        /* This filler replaced records that stated nothing of their own: skip it as they were skipped. */
        if (ret->type == WB_REC_FILLER && ret->filler.until == 0)
            continue;
        r = wb_log_skip_judge(skip, ret);
        if (r != 0)
            return MIN(r, 0);
    }
    return r;
}
