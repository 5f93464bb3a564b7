/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * A file's content at T: for each byte the earliest record after T that has it, else the present file.
 *
 * The records up to the moment of opening are gathered. A byte read from the present file is right if
 * the log, checked after the read, still has no record of it: if it had been changed before it was read, its record
 * would be there.
 */
#include "base/checksum.h"
#include "base/cleanup.h"
#include "base/io.h"
#include "history/bits.h"
#include "history/content/extent_map.h"
#include "history/internal.h"
#include "store/graveyard/bundle.h"
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

struct wb_file_view {
    struct wb_history *history;
    struct wb_revision *revision;
    int64_t since; /* when the state at T began to count, if T is in a stage; else T */
    uint64_t size;
    struct wb_body present; /* the present file */
    char *why_absent; /* or NULL: it was found, or there was no memory for the reason */
    int image;   /* ID.image, -1: not opened yet      */
    pthread_mutex_t lock;
    int log;     /* ID.undo, -1: it does not exist yet */
    uint64_t seen; /* offset in the log: all records below are in the map */
    unsigned moves; /* of the store, when `log` was opened */
    unsigned logs; /* how often another file replaced it */
    bool gathered; /* the map was made before, and then ...        */
    int64_t inside; /* ... with these records at or before T that count all the same (log.h): the oldest; 0: none */
    struct wb_extent_map map;
    uint32_t blobs;      /* the number of blobs that have a number so far          */
    struct wb_bits verified; /* blobs whose checksum was verified                  */
};

/*
 * A file's content at T according to its undo log: the records up to the moment of opening are gathered from the newest
 * to the oldest, older ones replacing newer ones. Records appended later only fill bytes that no record had before.
 *
 * Records of changes that never happened need not be skipped here: their bytes were read from the file at their `when`,
 * so they are right.
 */

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

static void file_view_forget(struct wb_file_view *view)
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
static int file_view_gather(struct wb_file_view *view)
{
    const struct wb_record *record;
    struct wb_log_scan scan;
    const struct wb_record *gap;
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
    gap = wb_log_scan_last_gap(&scan);
    if (r == WB_END && gap && gap->when > view->since)
        r = wb_history_fail_gap(gap->gap.reason);
    wb_log_scan_close(&scan);
    if (r == WB_END)
        r = check_meaning(view, inside);
    if (r >= 0)
        r = wb_extent_map_settle(&view->map);
    if (r < 0)
        file_view_forget(view);
    return r;
}

/* Whether the gap lost nothing that the state since `when` needs: everything was recorded before, or the gap had ended
 * by then. */
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
            if (record.type == WB_REC_GAP && is_of_other_times(&record.gap, view->since)) {
                view->seen = record.offset + record.total;
                continue;
            }
            full = record.type == WB_REC_GAP ? wb_history_fail_gap(record.gap.reason)
                                             : take_record(view, &record, wb_extent_map_fill);
            if (full < 0)
                break;
        }
        view->seen = record.offset + record.total;
    }
    wb_log_reader_deinit(&reader);
    if (full < 0)
        return full;
    if (r == WB_DAMAGED)
        return wb_history_fail(-EIO, "the undo log of \"%s\" is damaged at %" PRIu64, view->revision->name, view->seen);
    return r < 0 ? r : 0;
}

/* The store is in another place now, and this log does not get the new records. */
static bool is_elsewhere(const struct wb_file_view *view)
{
    return view->moves != atomic_load(&view->history->store->moves);
}

/* Another file has the log's name: parts of the image that only this log refers to may be gone. */
static bool file_view_is_replaced(const struct wb_file_view *view)
{
    struct stat st;

    return view->log >= 0 && (is_elsewhere(view) || (fstat(view->log, &st) == 0 && st.st_nlink == 0));
}

/* Adds new records of the log; view->lock is held. */
static int file_view_refresh(struct wb_file_view *view)
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
        file_view_forget(view); /* another file replaced it: new records are appended there */
    }
    return file_view_gather(view);
}

/*
 * After a look at the present file: adds new records of the log, and fails if the file was changed without a record
 * since it was opened. The file comes first: later changes do not matter, and one that was recorded by then has a GAP
 * before it in the log.
 */
static int file_view_recheck(struct wb_file_view *view)
{
    struct stat st;
    int r = 0;

    if (view->revision->when != WB_WHEN_PRESENT && view->present.fd >= 0 && fstat(view->present.fd, &st) == 0)
        r = wb_check_seen(view->history, view->revision, st.st_ctim.tv_sec * WB_WHEN_SECOND + st.st_ctim.tv_nsec,
                          view->since);
    return r < 0 ? r : file_view_refresh(view);
}

/* The present file is read in steps of at most this size, each followed by a check of the log. */
#define STEP (1u << 20)

/* ---- open and close -------------------------------------------------------------------------- */

/* Returns -EIO and the reason: the content was packed, and the bundle is damaged. */
static int file_view_fail_bundle(const struct wb_file_view *view)
{
    char path[WB_OBJECT_PATH_MAX];

    if (!view->present.bundle && view->present.summed) {
        wb_object_path(view->revision->object, WB_FILE_DATA, path);
        return wb_history_fail(-EIO, "\"%s\": %s is damaged (checksum); run vfsck", view->revision->name, path);
    }
    wb_object_path(view->revision->object, WB_FILE_BUNDLE, path);
    return wb_history_fail(-EIO, "the content of \"%s\" was packed, and %s is damaged", view->revision->name, path);
}

struct wb_file_view *wb_file_view_free(struct wb_file_view *view)
{
    if (!view)
        return NULL;
    file_view_forget(view);
    wb_extent_map_deinit(&view->map);
    wb_body_deinit(&view->present);
    wb_revision_unref(view->revision);
    pthread_mutex_destroy(&view->lock);
    free(view->why_absent);
    g_free(view);
    return NULL;
}

/* Opens attributes and content of one version, all from the same log file even if it is replaced meanwhile by
 * thinning. */
static int open_version(struct wb_file_view *view)
{
    struct wb_attrs attrs;
    int r;

    do {
        file_view_forget(view);
        view->gathered = false;
        r = view->revision->when != WB_WHEN_PRESENT ? file_view_gather(view) : 0;
        if (r == 0)
            r = wb_revision_attrs_since(view->history, view->revision, &attrs, &view->since);
    } while (r == 0 && file_view_is_replaced(view));
    if (r == 0)
        view->size = attrs.size;
    return r;
}

int wb_file_view_open(struct wb_history *history, struct wb_revision *file, struct wb_file_view **ret)
{
    struct wb_file_view *view;
    int fd, r;

    if (file->type != S_IFREG)
        return file->type == S_IFDIR ? -EISDIR : -EINVAL;
    view = g_try_new0(struct wb_file_view, 1);
    if (!view)
        return -ENOMEM;
    view->history = history;
    view->revision = wb_revision_ref(file);
    view->since = file->when;
    view->log = view->image = -1;
    pthread_mutex_init(&view->lock, NULL);
    wb_extent_map_init(&view->map);
    fd = wb_revision_open_present(history, file, O_RDONLY);
    /* Records may have all bytes, or a later read by another thread may need the file: keep the reason why it is
     * absent. */
    if (fd == -EIO)
        view->why_absent = strdup(wb_history_error());
    r = wb_body_init(&view->present, history->store, file->object, fd);
    if (r == -EBADMSG)
        r = file_view_fail_bundle(view);
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

bool wb_file_view_is_good(struct wb_file_view *view)
{
    unsigned logs;
    bool good;

    pthread_mutex_lock(&view->lock);
    logs = view->logs;
    good = !view->why_absent && file_view_recheck(view) == 0 && logs == view->logs &&
           !file_view_is_replaced(view);
    pthread_mutex_unlock(&view->lock);
    return good && wb_history_end(view->history, view->revision->when, 0) == 0;
}

uint64_t wb_file_view_size(const struct wb_file_view *view)
{
    return view->size;
}

bool wb_file_view_is_present(struct wb_file_view *view)
{
    uint64_t until, size;
    bool same;

    /* Read the present first, then the records of the log. */
    if (wb_body_size(&view->present, &size) < 0 || size != view->size)
        return false;
    pthread_mutex_lock(&view->lock);
    same = file_view_recheck(view) == 0 && !wb_extent_map_find(&view->map, 0, &until) && until >= view->size;
    pthread_mutex_unlock(&view->lock);
    return same && wb_history_end(view->history, view->revision->when, 0) == 0;
}

/* ---- reading --------------------------------------------------------------------------------- */

static int fail_blob(const struct wb_file_view *view, const struct wb_piece *piece)
{
    char path[WB_OBJECT_PATH_MAX];

    wb_object_path(view->revision->object, piece->kind == WB_EXTENT_IMAGE ? WB_FILE_IMAGE : WB_FILE_UNDO, path);
    return wb_history_fail(-EIO, "bytes at %" PRIu64 " of %s are damaged (checksum)", piece->blob, path);
}

/* Inline bytes are in a log, bytes of an image in a plain file. */
static int read_bytes(const struct wb_piece *piece, int fd, void *data, size_t length, uint64_t offset)
{
    return piece->kind == WB_EXTENT_INLINE ? wb_log_pread_exact(fd, data, length, offset)
                                           : wb_pread_exact(fd, data, length, offset);
}

/* Reads the whole blob into `data` and verifies its checksum. */
static int read_blob(struct wb_file_view *view, const struct wb_piece *piece, int fd, void *data)
{
    int r = read_bytes(piece, fd, data, piece->blob_length, piece->blob);

    if (r < 0)
        return r == -ENODATA || r == -EBADMSG ? fail_blob(view, piece) : r;
    /* A large image of shared blocks has no checksum (capture/undo.c): it is as reliable as the file itself. */
    if ((piece->kind == WB_EXTENT_INLINE || piece->check != 0) &&
        wb_checksum(data, piece->blob_length) != piece->check)
        return fail_blob(view, piece);
    wb_bits_set(&view->verified, piece->number); /* if this fails, the blob is verified again */
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

/* ID.image, opened at first use. A descriptor or -errno. */
static int file_view_open_image(struct wb_file_view *view, const struct wb_piece *piece)
{
    if (view->image < 0)
        view->image = wb_store_open_file(view->history->store, view->revision->object, WB_FILE_IMAGE, O_RDONLY);
    return view->image == -ENOENT ? fail_blob(view, piece) : view->image;
}

static int read_piece(struct wb_file_view *view, const struct wb_piece *piece, void *data, size_t length,
                      uint64_t offset)
{
    int fd = view->log, r;

    if (piece->kind == WB_PIECE_UNKNOWN)
        return wb_history_fail_gap((unsigned)piece->check);
    if (piece->kind == WB_EXTENT_ZERO) {
        memset(data, 0, length);
        return 0;
    }
    if (piece->kind == WB_EXTENT_IMAGE) {
        fd = file_view_open_image(view, piece);
        if (fd < 0)
            return fd;
    }
    offset = offset - piece->offset + piece->within;
    if (offset + length > piece->blob_length)
        return fail_blob(view, piece);
    /* Usually the whole blob is requested: it is read once. */
    if (length == piece->blob_length)
        return read_blob(view, piece, fd, data);
    r = verify_blob(view, piece, fd);
    if (r == 0)
        r = read_bytes(piece, fd, data, length, piece->blob + offset);
    return r == -ENODATA || r == -EBADMSG ? fail_blob(view, piece) : r;
}

/* Reads from the present file: `length` bytes that no record has; otherwise it returns no bytes. *ret_done: the number
 * of bytes. */
static int read_present(struct wb_file_view *view, void *data, size_t length, uint64_t offset, size_t *ret_done)
{
    uint64_t until = UINT64_MAX;
    size_t got = 0;
    int r;

    *ret_done = 0;
    length = MIN(length, STEP);
    r = wb_body_pread(&view->present, data, length, offset, &got);
    if (r == -EBADMSG)
        return file_view_fail_bundle(view);
    if (r == -EIO && view->why_absent)
        return wb_history_fail(r, "%s", view->why_absent);
    if (r == 0)
        r = file_view_recheck(view);
    if (r < 0)
        return r;
    if (wb_extent_map_find(&view->map, offset, &until))
        return 0;
    length = (size_t)MIN(length, until - offset);
    *ret_done = MIN(got, length);
    if (got < length && view->revision->when != WB_WHEN_PRESENT)
        return wb_history_fail(-EIO, "\"%s\" is shorter than it was, and no record has the removed part",
                               view->revision->name);
    return 0;
}

static ssize_t read_locked(struct wb_file_view *view, uint8_t *data, size_t length, uint64_t offset)
{
    size_t done = 0, step;
    int r = file_view_refresh(view);

    while (r == 0 && done < length) {
        uint64_t at = offset + done, until;
        const struct wb_piece *piece = wb_extent_map_find(&view->map, at, &until);

        step = piece ? (size_t)MIN(length - done, piece->offset + piece->length - at)
                     : (size_t)MIN(length - done, until - at);
        r = piece ? read_piece(view, piece, data + done, step, at)
                  : read_present(view, data + done, step, at, &step);
        if (r == 0)
            done += step;
        if (step == 0 && view->revision->when == WB_WHEN_PRESENT) /* truncated meanwhile */
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
    } while (n >= 0 && (logs != view->logs || file_view_is_replaced(view)));
    pthread_mutex_unlock(&view->lock);
    return wb_history_end(view->history, view->revision->when, n);
}

/* The holes of a file's content at T: SEEK_DATA and SEEK_HOLE. */

/* The same in an image: holes in cloned blocks are holes. If the image is too short, reading it fails. */
static int look_at_image(struct wb_file_view *view, const struct wb_piece *piece, uint64_t offset, bool *ret_hole,
                         uint64_t *ret_end)
{
    uint64_t end = piece->offset + piece->length;
    off_t start = (off_t)(piece->blob + piece->within + (offset - piece->offset)), data, hole = -1;
    int fd = file_view_open_image(view, piece);
    struct stat st;

    *ret_hole = false;
    *ret_end = end;
    if (fd < 0)
        return fd;
    if (fstat(fd, &st) < 0)
        return -errno;
    if ((uint64_t)st.st_size < (uint64_t)start + (end - offset))
        return 0;
    data = lseek(fd, start, SEEK_DATA);
    *ret_hole = data > start || (data < 0 && errno == ENXIO);
    if (data == start)
        hole = lseek(fd, start, SEEK_HOLE);
    if (*ret_hole ? data > start : hole > start)
        *ret_end = MIN(end, offset + (uint64_t)((*ret_hole ? data : hole) - start));
    return 0;
}

/* Whether the bytes from `offset` on are a hole, and the end of that hole or data. */
static int look_at_run(struct wb_file_view *view, uint64_t offset, bool *ret_hole, uint64_t *ret_end)
{
    const struct wb_piece *piece = wb_extent_map_find(&view->map, offset, ret_end);
    uint64_t end;
    int r;

    if (piece && piece->kind == WB_EXTENT_IMAGE)
        return look_at_image(view, piece, offset, ret_hole, ret_end);
    if (piece) {
        *ret_hole = piece->kind == WB_EXTENT_ZERO;
        *ret_end = piece->offset + piece->length;
        return piece->kind == WB_PIECE_UNKNOWN ? wb_history_fail_gap((unsigned)piece->check) : 0;
    }
    r = wb_body_run(&view->present, offset, ret_hole, &end);
    /* As for reading: a result from the present file is valid if no record has these bytes by now. */
    r = r == -EBADMSG ? file_view_fail_bundle(view) : r < 0 ? r : file_view_recheck(view);
    if (r < 0)
        return r;
    if (wb_extent_map_find(&view->map, offset, ret_end))
        return look_at_run(view, offset, ret_hole, ret_end);
    *ret_end = MIN(*ret_end, end);
    return 0;
}

static int seek_locked(struct wb_file_view *view, uint64_t offset, bool hole, uint64_t *ret)
{
    int r = file_view_refresh(view);

    while (r == 0 && offset < view->size) {
        uint64_t end = 0;
        bool is_hole = false;

        r = look_at_run(view, offset, &is_hole, &end);
        if (r == 0 && is_hole == hole) {
            *ret = offset;
            return 0;
        }
        offset = end;
    }
    *ret = view->size; /* the end of a file is a hole */
    return r < 0 ? r : hole ? 0 : -ENXIO;
}

int wb_file_view_seek(struct wb_file_view *view, uint64_t offset, bool hole, uint64_t *ret)
{
    int r;

    if (offset >= view->size)
        return -ENXIO;
    pthread_mutex_lock(&view->lock);
    r = seek_locked(view, offset, hole, ret);
    pthread_mutex_unlock(&view->lock);
    return (int)wb_history_end(view->history, view->revision->when, r);
}
