/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * A file's content at T: for each byte the earliest record after T that tells it, else the file as
 * it is now.
 *
 * The records up to the moment of opening are gathered from the newest to the oldest, the older
 * ones over the newer. What is appended later fills only what nothing told before. So a byte read
 * from the present file is right if the log, looked at after the reading, still tells nothing
 * about it: had it been changed before it was read, its record would be there.
 *
 * Records of changes that never happened need not be left out here: what they tell was read from the file
 * at their `when`, and it was so.
 */
#include "history/view_parts.h"

#include "base/checksum.h"
#include "base/cleanup.h"
#include "base/io.h"
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <string.h>

/* The present is read in steps of this size at most, each followed by a look into the log. */
#define STEP (1u << 20)

/* ---- gathering ------------------------------------------------------------------------------- */

static int take_record(struct wb_file_view *view, const struct wb_record *record,
                       int (*put)(struct wb_extent_map *map, const struct wb_piece *piece))
{
    const struct wb_rec_data *data = &record->data;
    uint32_t payload;
    int r = 0;

    /* Whatever older records do not tell is not known. */
    if (wb_trace_is_cut(record))
        return put(&view->map, &(struct wb_piece){
                                   .length = INT64_MAX, .kind = WB_PIECE_UNKNOWN, .number = view->blobs++});
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

/* Records that tell no content need not be looked at, however many there are. */
static bool pass_no_content(const struct wb_record *index, void *data)
{
    struct wb_file_view *view = data;

    if (index->index.types & 1u << WB_REC_DATA || index->index.first <= view->spot->when)
        return false;
    view->seen = MAX(view->seen, index->offset + index->total);
    return true;
}

/* Whether the state at T is the one that was read before, which may have been thinned out since. */
static int check_meaning(struct wb_file_view *view, int64_t inside)
{
    if (view->gathered && inside != view->inside)
        return wb_history_fail(-EIO, "the version of \"%s\" that was being read is not kept any more (vprune); opened "
                               "again, it is an older one", view->spot->name);
    view->gathered = true;
    view->inside = inside;
    return 0;
}

static void forget(struct wb_file_view *view)
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

/* From the tail down to T. Where that fails, nothing is known, and whoever asks again fails again. */
static int gather(struct wb_file_view *view)
{
    const struct wb_record *record;
    struct wb_trace trace;
    int64_t inside = 0;
    int r;

    view->moves = atomic_load(&view->history->store->moves);
    r = wb_trace_open(&trace, view->history, view->spot->object, WB_FILE_UNDO, view->spot->when);
    if (r < 0)
        return r;
    trace.through = true;
    trace.source.reader.pass = pass_no_content;
    trace.source.reader.pass_data = view;
    while ((r = wb_trace_next(&trace, &record)) == 0) {
        view->seen = MAX(view->seen, record->offset + record->total);
        if (record->written <= view->spot->when)
            inside = record->written;
        r = take_record(view, record, wb_extent_map_gather);
        if (r < 0)
            break;
    }
    if (r == WB_END && trace.source.fd >= 0) {
        /* Nothing newer than T: then what lies below the newest record at or before it does not count. */
        if (view->seen == 0 && trace.source.full)
            view->seen = trace.source.head.offset;
        view->log = fcntl(trace.source.fd, F_DUPFD_CLOEXEC, 3);
        if (view->log < 0)
            r = -errno;
    }
    wb_trace_close(&trace);
    if (r == WB_END)
        r = check_meaning(view, inside);
    if (r >= 0)
        r = wb_extent_map_settle(&view->map);
    if (r < 0)
        forget(view);
    return r;
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
        if (record.when > view->spot->when) {
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
        return wb_history_fail(-EIO, "the undo log of \"%s\" is damaged at %" PRIu64, view->spot->name,
                               view->seen);
    return r < 0 ? r : 0;
}

/* The store is in another place by now, and what is told there this log does not tell. */
static bool is_elsewhere(const struct wb_file_view *view)
{
    return view->moves != atomic_load(&view->history->store->moves);
}

/* Another file has the log's name: what the image holds may be gone where only this one told of it. */
static bool is_replaced(const struct wb_file_view *view)
{
    struct stat st;

    return view->log >= 0 && (is_elsewhere(view) || (fstat(view->log, &st) == 0 && st.st_nlink == 0));
}

int wb_file_view_refresh(struct wb_file_view *view)
{
    struct stat st;
    uint64_t size;
    int r;

    if (view->spot->when == WB_WHEN_PRESENT)
        return 0;
    r = wb_history_check_gaps(view->history, view->spot->object, WB_FILE_UNDO);
    if (r < 0)
        return r;
    if (view->log >= 0) {
        if (fstat(view->log, &st) < 0)
            return -errno;
        if (st.st_nlink > 0 && !is_elsewhere(view)) {
            r = wb_log_size(view->log, &size);
            return r < 0 ? r : size > view->seen ? read_news(view) : 0;
        }
        forget(view); /* replaced by another: what is appended now goes there */
    }
    return gather(view);
}

/* ---- open and close -------------------------------------------------------------------------- */

int wb_file_view_fail_bundle(const struct wb_file_view *view)
{
    char path[WB_OBJECT_PATH_MAX];

    wb_object_path(view->spot->object, WB_FILE_BUNDLE, path);
    return wb_history_fail(-EIO, "the content of \"%s\" was packed, and %s is damaged", view->spot->name, path);
}

struct wb_file_view *wb_file_view_free(struct wb_file_view *view)
{
    if (!view)
        return NULL;
    forget(view);
    wb_extent_map_deinit(&view->map);
    wb_body_deinit(&view->present);
    wb_spot_unref(view->spot);
    pthread_mutex_destroy(&view->lock);
    g_free(view);
    return NULL;
}

/* Attributes and content of one version: of the one log, or of the other where it is thinned out meanwhile. */
static int open_version(struct wb_file_view *view)
{
    struct wb_attrs attrs;
    int r;

    do {
        forget(view);
        view->gathered = false;
        r = view->spot->when != WB_WHEN_PRESENT ? gather(view) : 0;
        if (r == 0)
            r = wb_spot_attrs(view->history, view->spot, &attrs);
    } while (r == 0 && is_replaced(view));
    if (r == 0)
        view->size = attrs.size;
    return r;
}

int wb_file_view_open(struct wb_history *history, struct wb_spot *file, struct wb_file_view **ret)
{
    struct wb_file_view *view;
    int r;

    if (file->type != S_IFREG)
        return file->type == S_IFDIR ? -EISDIR : -EINVAL;
    view = g_try_new0(struct wb_file_view, 1);
    if (!view)
        return -ENOMEM;
    view->history = history;
    view->spot = wb_spot_ref(file);
    view->log = view->image = -1;
    pthread_mutex_init(&view->lock, NULL);
    wb_extent_map_init(&view->map);
    r = wb_body_init(&view->present, history->store, file->object, wb_spot_open_present(history, file, O_RDONLY));
    if (r == -EBADMSG)
        r = wb_file_view_fail_bundle(view);
    if (r == 0)
        r = open_version(view);
    r = (int)wb_history_end(history, file->when, r);
    if (r < 0) {
        wb_file_view_free(view);
        return r;
    }
    *ret = view;
    return 0;
}

uint64_t wb_file_view_size(const struct wb_file_view *view)
{
    return view->size;
}

bool wb_file_view_is_present(struct wb_file_view *view)
{
    uint64_t until, size;
    bool same;

    /* The present first, then what the log tells of it. */
    if (wb_body_size(&view->present, &size) < 0 || size != view->size)
        return false;
    pthread_mutex_lock(&view->lock);
    same = wb_file_view_refresh(view) == 0 && !wb_extent_map_find(&view->map, 0, &until) && until >= view->size;
    pthread_mutex_unlock(&view->lock);
    return same && wb_history_end(view->history, view->spot->when, 0) == 0;
}

/* ---- reading --------------------------------------------------------------------------------- */

static int fail_blob(const struct wb_file_view *view, const struct wb_piece *piece)
{
    char path[WB_OBJECT_PATH_MAX];

    wb_object_path(view->spot->object, piece->kind == WB_EXTENT_IMAGE ? WB_FILE_IMAGE : WB_FILE_UNDO, path);
    return wb_history_fail(-EIO, "bytes at %" PRIu64 " of %s are damaged (checksum)", piece->blob, path);
}

/* Inline bytes are in a log, those of an image in a plain file. */
static int read_bytes(const struct wb_piece *piece, int fd, void *data, size_t length, uint64_t offset)
{
    return piece->kind == WB_EXTENT_INLINE ? wb_log_pread_exact(fd, data, length, offset)
                                           : wb_pread_exact(fd, data, length, offset);
}

/* Reads the whole blob into `data` and compares its checksum. */
static int read_blob(struct wb_file_view *view, const struct wb_piece *piece, int fd, void *data)
{
    int r = read_bytes(piece, fd, data, piece->blob_length, piece->blob);

    if (r < 0)
        return r == -ENODATA || r == -EBADMSG ? fail_blob(view, piece) : r;
    /* An image of shared blocks has no checksum: it is as good as the file's own. */
    if ((piece->kind == WB_EXTENT_INLINE || piece->check != 0) &&
        wb_checksum(data, piece->blob_length) != piece->check)
        return fail_blob(view, piece);
    wb_bits_set(&view->verified, piece->number); /* or it is compared again */
    return 0;
}

static int verify_blob(struct wb_file_view *view, const struct wb_piece *piece, int fd)
{
    g_autofree uint8_t *data = NULL;

    if (wb_bits_has(&view->verified, piece->number) || (piece->kind == WB_EXTENT_IMAGE && piece->check == 0))
        return 0;
    data = wb_alloc_transfer(piece->blob_length);
    return data ? read_blob(view, piece, fd, data) : -ENOMEM;
}

static int read_piece(struct wb_file_view *view, const struct wb_piece *piece, void *data, size_t length,
                      uint64_t offset)
{
    int fd = view->log, r;

    if (piece->kind == WB_PIECE_UNKNOWN)
        return wb_history_fail_cut();
    if (piece->kind == WB_EXTENT_ZERO) {
        memset(data, 0, length);
        return 0;
    }
    if (piece->kind == WB_EXTENT_IMAGE) {
        if (view->image < 0)
            view->image = wb_store_open_file(view->history->store, view->spot->object, WB_FILE_IMAGE, O_RDONLY);
        if (view->image < 0)
            return view->image == -ENOENT ? fail_blob(view, piece) : view->image;
        fd = view->image;
    }
    offset = offset - piece->offset + piece->within;
    if (offset + length > piece->blob_length)
        return fail_blob(view, piece);
    /* Usually a whole blob is asked for: it is read once. */
    if (length == piece->blob_length)
        return read_blob(view, piece, fd, data);
    r = verify_blob(view, piece, fd);
    if (r == 0)
        r = read_bytes(piece, fd, data, length, piece->blob + offset);
    return r == -ENODATA || r == -EBADMSG ? fail_blob(view, piece) : r;
}

/* As the file is now: `length` bytes that no record tells, else nothing is taken. *ret_done: how many. */
static int read_present(struct wb_file_view *view, void *data, size_t length, uint64_t offset, size_t *ret_done)
{
    uint64_t until = UINT64_MAX;
    size_t got = 0;
    int r;

    *ret_done = 0;
    length = MIN(length, STEP);
    r = wb_body_pread(&view->present, data, length, offset, &got);
    r = r == -EBADMSG ? wb_file_view_fail_bundle(view) : r < 0 ? r : wb_file_view_refresh(view);
    if (r < 0)
        return r;
    if (wb_extent_map_find(&view->map, offset, &until))
        return 0;
    length = (size_t)MIN(length, until - offset);
    *ret_done = MIN(got, length);
    if (got < length && view->spot->when != WB_WHEN_PRESENT)
        return wb_history_fail(-EIO, "\"%s\" is shorter than it was, and no record tells what was cut off",
                               view->spot->name);
    return 0;
}

static ssize_t read_locked(struct wb_file_view *view, uint8_t *data, size_t length, uint64_t offset)
{
    size_t done = 0, step;
    int r = wb_file_view_refresh(view);

    while (r == 0 && done < length) {
        uint64_t at = offset + done, until;
        const struct wb_piece *piece = wb_extent_map_find(&view->map, at, &until);

        step = piece ? (size_t)MIN(length - done, piece->offset + piece->length - at)
                     : (size_t)MIN(length - done, until - at);
        r = piece ? read_piece(view, piece, data + done, step, at)
                  : read_present(view, data + done, step, at, &step);
        if (r == 0)
            done += step;
        if (step == 0 && view->spot->when == WB_WHEN_PRESENT) /* cut off since */
            break;
    }
    return r < 0 ? r : (ssize_t)done;
}

ssize_t wb_file_view_pread(struct wb_file_view *view, void *data, size_t length, uint64_t offset)
{
    unsigned logs;
    ssize_t n;

    if (offset >= view->size || length == 0)
        return 0;
    length = (size_t)MIN(length, view->size - offset);
    pthread_mutex_lock(&view->lock);
    do {
        logs = view->logs;
        n = read_locked(view, data, length, offset);
    } while (n >= 0 && (logs != view->logs || is_replaced(view)));
    pthread_mutex_unlock(&view->lock);
    return wb_history_end(view->history, view->spot->when, n);
}
