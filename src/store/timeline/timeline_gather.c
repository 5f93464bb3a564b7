/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Selects the records of a log that are entries of the timeline. Logs are read backward, from their tail to the known
 * part: so the cost depends on the new records only, an ABORT is read before the record that it aborts, and it does not
 * matter if the log was rewritten meanwhile.
 */
#include "store/tables/manifest.h"
#include "store/timeline/timeline_parts.h"

#include "store/object/object_log.h"
#include <errno.h>

/* The record that describes most of a change comes first: of a rename, the name that it removed. */
enum { RANK_LOSS, RANK_NAME, RANK_DATA, RANK_XATTR, RANK_ATTR, RANK_GAP, RANK_NONE };

static unsigned rank_of(const struct wb_record *record)
{
    /* Erased history is not shown; any other gap is. */
    if (record->type == WB_REC_GAP)
        return record->gap.reason == WB_GAP_ERASED ? RANK_NONE : RANK_GAP;
    /* Records without an operation, and pruned history, are not changes. */
    if (record->op == WB_OP_NONE || record->op == WB_OP_FORGET)
        return RANK_NONE;
    switch (record->type) {
    case WB_REC_NAME:
        for (uint32_t i = 0; i < record->name.count; i++)
            if (record->name.slots[i].unbind == WB_UNBIND_RENAMED)
                return RANK_LOSS;
        return RANK_NAME;
    case WB_REC_DATA:
        return RANK_DATA;
    case WB_REC_XATTR:
        return RANK_XATTR;
    case WB_REC_ATTR:
        return RANK_ATTR;
    default:
        return RANK_NONE;
    }
}

static bool has_failed(const struct wb_gathering *gathering, int64_t when)
{
    for (unsigned i = 0; i < gathering->failed_count; i++)
        if (gathering->failed[i] == when)
            return true;
    return gathering->store->inflight && wb_inflight_has(gathering->store, when);
}

static int take(struct wb_gathering *gathering, const struct wb_record *record, struct wb_object object,
                enum wb_object_file file)
{
    struct wb_times_entry entry = {record->when, object, file, record->offset, record->actor};
    unsigned rank = rank_of(record);
    int r = 0;

    if (rank != RANK_NONE && record->when > gathering->after)
        r = wb_sorter_add(&gathering->times, &entry, rank);
    /* The first PLACE of a catalog is found without an entry. */
    if (r == 0 && record->type == WB_REC_PLACE && file == WB_FILE_CATALOG && record->offset > 0 &&
        record->when > gathering->moves_after)
        r = wb_sorter_add(&gathering->moves, &entry, 0);
    return r;
}

int wb_gather_log(struct wb_gathering *gathering, struct wb_object object, enum wb_object_file file, bool *ret_held)
{
    _cleanup_object_log_ struct wb_object_log log = WB_OBJECT_LOG_CLOSED;
    struct wb_log_skip skip = {0};
    struct wb_record record;
    int r = wb_object_log_open(&log, gathering->store, object, file);

    /* A missing log has no entries. */
    if (r == -EIO && wb_manifest_check(gathering->store, object, file) != 0)
        return 0;
    if (r <= 0)
        return r;
    while ((r = wb_log_reader_prev_effective(&log.reader, &skip, &record)) == 0 || r == WB_DAMAGED) {
        if (r == WB_DAMAGED)
            continue;
        if (record.written <= gathering->after)
            break;
        if (wb_record_is_staged(&record))
            continue; /* the end of its stage is the entry */
        record.when = record.written; /* an entry has the `when` of its own record, even if that counts as one change
                                       * with others */
        if (record.when >= gathering->horizon) {
            *ret_held = true;
            continue;
        }
        r = has_failed(gathering, record.when) ? 0 : take(gathering, &record, object, file);
        if (r < 0)
            break;
    }
    return r < 0 && r != -EBADMSG ? r : 0;
}
