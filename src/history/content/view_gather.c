/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * A file's content at T according to its undo log: the records up to the moment of opening are gathered from the newest
 * to the oldest, older ones replacing newer ones. Records appended later only fill bytes that no record had before.
 *
 * Records of changes that never happened need not be skipped here: their bytes were read from the file at their `when`,
 * so they are right.
 */
#include "history/content/view_parts.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>

static int take_record(struct wb_file_view *view, const struct wb_record *record,
                       int (*put)(struct wb_extent_map *map, const struct wb_piece *piece))
{
    const struct wb_rec_data *data = &record->data;
    uint32_t payload;
    int r = 0;

    /* Bytes that no older record has are not known. */
    if (wb_log_scan_is_cut(record))
        return put(&view->map, &(struct wb_piece){
                                   .length = INT64_MAX, .kind = WB_PIECE_UNKNOWN, .number = view->blobs++,
                                   .check = record->gap.reason});
    if (record->type != WB_REC_DATA)
        return 0;
    payload = view->blobs++;
    for (uint32_t i = 0; r == 0 && i < data->count; i++) {
        const struct wb_extent *extent = &data->extents[i];
        struct wb_piece piece = {
            .offset = extent->offset, .length = extent->length, .kind = extent->kind, .number = payload};

        if (extent->kind == WB_EXTENT_INLINE) {
            piece.within = extent->source;
            piece.blob = record->payload_offset;
            piece.blob_length = record->payload_length;
            piece.check = record->payload_check;
        } else if (extent->kind == WB_EXTENT_IMAGE) {
            piece.number = view->blobs++;
            piece.blob = extent->source;
            piece.blob_length = extent->length;
            piece.check = extent->check;
        }
        r = put(&view->map, &piece);
    }
    return r;
}

/* Records without content can be skipped, however many there are. */
static bool pass_no_content(const struct wb_record *index, void *data)
{
    struct wb_file_view *view = data;

    if (index->index.types & 1u << WB_REC_DATA || index->index.first <= view->revision->when)
        return false;
    view->seen = MAX(view->seen, index->offset + index->total);
    return true;
}

/* Whether the state at T is the one that was read before; its version may have been removed by thinning since. */
static int check_meaning(struct wb_file_view *view, int64_t inside)
{
    if (view->gathered && inside != view->inside)
        return wb_history_fail(-EIO,
                               "the version of \"%s\" that was being read is not kept any more (vprune); opened "
                               "again, it is an older one",
                               view->revision->name);
    view->gathered = true;
    view->inside = inside;
    return 0;
}

void wb_file_view_forget(struct wb_file_view *view)
{
    if (view->log >= 0)
        close(view->log);
    if (view->image >= 0)
        close(view->image);
    view->log = view->image = -1;
    view->logs++;
    view->seen = 0;
    wb_extent_map_deinit(&view->map);
    wb_extent_map_init(&view->map);
    view->blobs = 0;
    wb_bits_deinit(&view->verified);
}

/* Gathers from the tail down to T. If that fails, nothing is known, and the next request tries again. */
int wb_file_view_gather(struct wb_file_view *view)
{
    const struct wb_record *record;
    struct wb_log_scan scan;
    int64_t inside = 0;
    int r;

    view->moves = atomic_load(&view->history->store->moves);
    r = wb_log_scan_open(&scan, view->history, view->revision->object, WB_FILE_UNDO, view->revision->when);
    if (r < 0)
        return r;
    scan.through = true;
    scan.source.reader.pass = pass_no_content;
    scan.source.reader.pass_data = view;
    while ((r = wb_log_scan_next(&scan, &record)) == 0) {
        view->seen = MAX(view->seen, record->offset + record->total);
        if (record->written <= view->revision->when)
            inside = record->written;
        r = take_record(view, record, wb_extent_map_gather);
        if (r < 0)
            break;
    }
    if (r == WB_END && scan.source.fd >= 0) {
        /* No record is newer than T: then the records at or before T, from the newest one down, do not count. */
        if (view->seen == 0 && scan.source.full)
            view->seen = scan.source.head.offset;
        view->log = fcntl(scan.source.fd, F_DUPFD_CLOEXEC, 3);
        if (view->log < 0)
            r = -errno;
    }
    wb_log_scan_close(&scan);
    if (r == WB_END)
        r = check_meaning(view, inside);
    if (r >= 0)
        r = wb_extent_map_settle(&view->map);
    if (r < 0)
        wb_file_view_forget(view);
    return r;
}

/* Whether the gap lost nothing that the state at `when` needs: everything was recorded before, or the gap had ended by
 * then. */
static bool is_of_other_times(const struct wb_rec_gap *gap, int64_t when)
{
    return (gap->reason == WB_GAP_POLICY && when < gap->since) || (gap->until != 0 && when >= gap->until);
}

static int read_news(struct wb_file_view *view)
{
    struct wb_log_reader reader;
    struct wb_record record;
    int r, full = 0;

    r = wb_log_reader_init(&reader, view->log);
    if (r < 0)
        return r;
    wb_log_reader_seek(&reader, view->seen);
    while ((r = wb_log_reader_next(&reader, &record)) == 0) {
        if (record.when > view->revision->when) {
            if (record.type == WB_REC_GAP && is_of_other_times(&record.gap, view->revision->when)) {
                view->seen = record.offset + record.total;
                continue;
            }
            if (record.type == WB_REC_GAP)
                break;
            full = take_record(view, &record, wb_extent_map_fill);
            if (full < 0)
                break;
        }
        view->seen = record.offset + record.total;
    }
    wb_log_reader_deinit(&reader);
    if (full < 0)
        return full;
    if (r == 0 || r == WB_DAMAGED)
        return wb_history_fail(-EIO, "the undo log of \"%s\" is damaged at %" PRIu64, view->revision->name, view->seen);
    return r < 0 ? r : 0;
}

/* The store is in another place now, and this log does not get the new records. */
static bool is_elsewhere(const struct wb_file_view *view)
{
    return view->moves != atomic_load(&view->history->store->moves);
}

bool wb_file_view_is_replaced(const struct wb_file_view *view)
{
    struct stat st;

    return view->log >= 0 && (is_elsewhere(view) || (fstat(view->log, &st) == 0 && st.st_nlink == 0));
}

int wb_file_view_refresh(struct wb_file_view *view)
{
    struct stat st;
    uint64_t size;
    int r;

    if (view->revision->when == WB_WHEN_PRESENT)
        return 0;
    r = wb_history_check_gaps(view->history, view->revision->object, WB_FILE_UNDO, view->revision->when);
    if (r < 0)
        return r;
    if (view->log >= 0) {
        if (fstat(view->log, &st) < 0)
            return -errno;
        if (st.st_nlink > 0 && !is_elsewhere(view)) {
            r = wb_log_size(view->log, &size);
            return r < 0 ? r : size > view->seen ? read_news(view) : 0;
        }
        wb_file_view_forget(view); /* another file replaced it: new records are appended there */
    }
    return wb_file_view_gather(view);
}
