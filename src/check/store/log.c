/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Checks one log, from its first byte to its last: the frame of every record, whether its kind is allowed in this log,
 * its order, its payload and everything it refers to.
 */
#define XXH_STATIC_LINKING_ONLY
#include "check/checking.h"

#include "base/cleanup.h"
#include "base/io.h"
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <xxhash.h>

static int check_index(struct wb_checking *checking, int fd, const struct wb_record *record, const GArray *records)
{
    uint8_t head[WB_HEAD_SIZE + WB_BODY_MAX], copy[WB_COPY_SIZE(WB_BODY_MAX)];
    uint64_t begin = record->offset;
    size_t used = 0;
    uint32_t count = 0;
    int r;

    /* Newest first, as they are copied. */
    for (guint i = records->len; i-- > 0; count++) {
        const struct wb_check_span *span = &g_array_index(records, struct wb_check_span, i);
        size_t length;

        if (span->offset < record->index.from)
            break;
        begin = span->offset;
        if (record->payload_length == 0)
            continue;
        r = wb_log_pread_exact(fd, head, WB_HEAD_SIZE + (size_t)span->body_length, span->offset);
        if (r < 0)
            return r == -ENODATA || r == -EBADMSG ? 0 : r;
        length = wb_record_copy(head, span->body_length, copy);
        if (used + length > record->payload_length || memcmp(checking->payload + used, copy, length) != 0)
            return 0;
        used += length;
    }
    return begin == record->index.from && count == record->index.count && used == record->payload_length;
}

/* The two heads of a pack: each can be made from the other. */

static void bad_head(struct wb_checking *checking, const char *path, uint64_t from, const uint8_t *head, size_t length)
{
    struct wb_check_where where = {path, NULL, from, from + length};
    const char *text =
        from > 0 ? "the second head of the packed data is damaged" : "the head of the packed data is damaged";

    if (wb_check_mends(checking, false))
        wb_check_report_mended(checking, wb_mend_file(checking, path, from, head, length), "damaged-pack", where,
                               "rewritten from its copy", "%s", text);
    else
        wb_check_report(checking, WB_CHECK_WRONG, "damaged-pack", where, "can be rewritten from its copy", "%s", text);
}

/* The heads of a packed log. */
static int check_pack(struct wb_checking *checking, const char *path, const struct wb_log_bytes *bytes)
{
    uint8_t made[WB_PACK_END_SIZE], there[WB_PACK_END_SIZE];
    uint64_t end = wb_log_bytes_packed(bytes);
    int r;

    if (!bytes->map)
        return 0;
    wb_pack_encode_end(&bytes->map->head, made);
    if (bytes->second) {
        bad_head(checking, path, 0, made, WB_PACK_HEAD_SIZE);
        return 0;
    }
    r = wb_pread_exact(bytes->fd, there, sizeof(there), end - sizeof(there));
    if (r < 0 && r != -ENODATA)
        return r;
    if (r < 0 || memcmp(there, made, sizeof(made)) != 0)
        bad_head(checking, path, end - sizeof(made), made, sizeof(made));
    return 0;
}

/* For a checksum over more than fits into memory at once. */

/* How long beside a daemon, in steps of 10 ms: one that is interrupted in its write may take its time. */
#define TRIES 1000

struct log_check {
    struct wb_checking *checking;
    const char *path;
    enum wb_check_log_kind kind;
    struct wb_object object;
    int fd, image_fd;
    uint64_t image_size;
    struct wb_log_reader reader;
    int64_t when;     /* of the record before */
    int64_t forgotten; /* older states were: a record up to then may still be there, without its image */
    bool more;        /* which said that there are more of its change */
    bool first, gap;
    uint64_t nobodys; /* records of an actor that is not there */
    GArray *spans;    /* since the last INDEX: struct wb_check_span */
    uint64_t last_index;
};

static struct wb_check_where at(const struct log_check *log, const struct wb_record *record)
{
    return (struct wb_check_where){log->path, NULL, record->offset, record->offset + record->total};
}

static void wrong(const struct log_check *log, const struct wb_record *record, const char *code, const char *text)
{
    wb_check_report(log->checking, WB_CHECK_LOST, code, at(log, record), NULL, "%s", text);
}

/* ---- the frame ---------------------------------------------------------------------------------- */

static int check_trailer(struct log_check *log, const struct wb_record *record)
{
    uint8_t data[WB_TRAILER_SIZE];
    uint32_t total = 0;
    uint64_t end = record->offset + record->total;
    int r = wb_log_bytes_exact(&log->reader.bytes, data, sizeof(data), end - sizeof(data));

    if (r < 0 && r != -EBADMSG)
        return r == -ENODATA ? 0 : r;
    if (r == 0 && wb_record_measure_end(data, &total) == 0 && total == record->total)
        return 0;
    if (end <= wb_log_bytes_unpacked(&log->reader.bytes))
        wb_check_report(log->checking, WB_CHECK_NOTE, "damaged-trailer", at(log, record), NULL,
                        "the end of a record is damaged, in the packed part of its log");
    else if (wb_check_mends(log->checking, false))
        wb_check_report_mended(log->checking, wb_mend_trailer(log->checking, log->path, record), "damaged-trailer",
                               at(log, record), "rewritten from the record's head", "the end of a record is damaged");
    else
        wb_check_report(log->checking, WB_CHECK_WRONG, "damaged-trailer", at(log, record),
                        "can be rewritten from the record's head", "the end of a record is damaged");
    return 0;
}

static int check_payload(struct log_check *log, const struct wb_record *record)
{
    int r;

    /* Nobody reads a filler's: where it is to become a hole, it is what it was for a while, or after a crash. */
    if (record->payload_length == 0 || record->type == WB_REC_FILLER)
        return 0;
    r = wb_log_read_payload(log->fd, record, log->checking->payload);
    if (r == -EBADMSG && record->type != WB_REC_INDEX)
        wrong(log, record, "damaged-payload", "the content of a record is damaged (checksum); reading it is refused");
    return r == -EBADMSG ? 0 : r;
}

/* Which types may be where. Those of later versions may be anywhere. */
static bool may_be_here(const struct log_check *log, unsigned type)
{
    static const uint32_t allowed[] = {
        [WB_CHECK_UNDO] = 1u << WB_REC_ATTR | 1u << WB_REC_DATA | 1u << WB_REC_XATTR | 1u << WB_REC_PLACE |
                          1u << WB_REC_ABORT | 1u << WB_REC_GAP | 1u << WB_REC_INDEX,
        [WB_CHECK_CATALOG] = 1u << WB_REC_NAME | 1u << WB_REC_ATTR | 1u << WB_REC_XATTR | 1u << WB_REC_PLACE |
                             1u << WB_REC_ABORT | 1u << WB_REC_GAP,
        [WB_CHECK_ACTORS] = 1u << WB_REC_ACTOR | 1u << WB_REC_ABORT | 1u << WB_REC_GAP,
        [WB_CHECK_SNAPSHOTS] = 1u << WB_REC_SNAPSHOT | 1u << WB_REC_ABORT | 1u << WB_REC_GAP,
    };

    if (type == WB_REC_THINNED)
        return log->kind == WB_CHECK_CATALOG;
    return type > WB_REC_INDEX || allowed[log->kind] & 1u << type;
}

static void check_order(struct log_check *log, const struct wb_record *record)
{
    /* a GAP ends where the record after it begins */
    bool twice = record->when == log->when && !log->more && log->when > 0 && record->type != WB_REC_GAP && !log->gap;

    if (record->when < log->when || twice)
        wrong(log, record, "wrong-order", "a record is not later than the one before it");
    else if (log->more && record->when != log->when && !wb_check_is_unsettled(log->checking, log->when))
        wb_check_report(log->checking, WB_CHECK_NOTE, "incomplete-change", at(log, record), NULL,
                        "the change before this record is incomplete; it was never made");
    /* The `when` of an INDEX is no moment's, and in a copy what comes next may have it, too. */
    if (record->type != WB_REC_INDEX)
        log->when = record->when;
    log->more = record->flags & WB_RECORD_MORE;
    log->gap = record->type == WB_REC_GAP;
}

/* ---- what it refers to --------------------------------------------------------------------------- */

static void check_actor(struct log_check *log, const struct wb_record *record)
{
    struct wb_checking *checking = log->checking;
    uint32_t index = record->actor;

    if (index > 0 && checking->actors && (uint64_t)(index - 1) * 8 < checking->actors_end &&
        !g_hash_table_contains(checking->actors, GUINT_TO_POINTER(index)))
        log->nobodys++;
}

static int image_check(const struct log_check *log, const struct wb_extent *extent, uint64_t *ret)
{
    uint64_t offset = extent->source, left = extent->length;
    XXH3_state_t *state = XXH3_createState();
    int r = state ? 0 : -ENOMEM;

    if (r == 0)
        XXH3_64bits_reset(state);
    while (r == 0 && left > 0) {
        size_t n = (size_t)MIN(left, WB_PAYLOAD_MAX);

        r = wb_pread_exact(log->image_fd, log->checking->copy, n, offset);
        if (r == 0)
            XXH3_64bits_update(state, log->checking->copy, n);
        offset += n;
        left -= n;
    }
    if (r == 0)
        *ret = XXH3_64bits_digest(state);
    XXH3_freeState(state);
    return r;
}

static void open_image(struct log_check *log)
{
    char path[WB_OBJECT_PATH_MAX];
    struct stat st;

    if (log->image_fd < 0) {
        wb_object_path(log->object, WB_FILE_IMAGE, path);
        log->image_fd = openat(log->checking->dir_fd, path, O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
    }
    if (log->image_fd >= 0 && fstat(log->image_fd, &st) == 0)
        log->image_size = (uint64_t)st.st_size;
}

/* What a daemon is writing grows meanwhile: it is looked at again before it is called too short. */
static bool image_holds(struct log_check *log, const struct wb_extent *extent)
{
    for (int i = 0; i < 2; i++) {
        if (log->image_fd >= 0 && extent->source <= log->image_size &&
            extent->length <= log->image_size - extent->source)
            return true;
        if (i == 0)
            open_image(log);
    }
    return false;
}

static int check_extents(struct log_check *log, const struct wb_record *record)
{
    for (uint32_t i = 0; i < record->data.count; i++) {
        const struct wb_extent *extent = &record->data.extents[i];
        uint64_t check = 0;
        int r;

        if (extent->kind != WB_EXTENT_IMAGE)
            continue;
        if (!image_holds(log, extent)) {
            wrong(log, record, "missing-image", "the image with the content of a record is missing or too short");
            return 0;
        }
        if (extent->check == 0 || record->when <= log->forgotten)
            continue;
        r = image_check(log, extent, &check);
        if (r < 0 && r != -EIO)
            return r;
        if (r < 0 || check != extent->check)
            wrong(log, record, "damaged-image", "the image with the content of a record does not match its checksum");
    }
    return 0;
}

static void note_mentioned(struct log_check *log, struct wb_object object)
{
    struct wb_known *known = wb_object_is_none(object) ? NULL : wb_check_known(log->checking, object);

    if (known)
        known->mentioned = true;
}

/* The name leads to it, at times before that record. */
static void note_named(struct log_check *log, struct wb_object object)
{
    struct wb_known *known;

    note_mentioned(log, object);
    known = g_hash_table_lookup(log->checking->objects, &object);
    if (known)
        known->named = true;
}

static void check_subject(struct log_check *log, const struct wb_record *record, struct wb_object object, bool others)
{
    if (!others && !wb_object_equal(object, log->object))
        wrong(log, record, "wrong-object", "a record belongs to another object than its log");
    note_mentioned(log, object);
    wb_external_note(log->checking, object, record);
}

static void check_abort(struct log_check *log, const struct wb_record *record)
{
    int64_t *target = g_new(int64_t, 1);

    *target = record->abort.target;
    g_hash_table_add(log->checking->aborted, target);
    if (record->abort.target > record->when)
        wrong(log, record, "wrong-abort", "a record aborts a change that is later than itself");
}

static int check_body(struct log_check *log, const struct wb_record *record)
{
    switch (record->type) {
    case WB_REC_NAME:
        for (uint32_t i = 0; i < record->name.count; i++) {
            note_named(log, record->name.slots[i].object);
            wb_external_note(log->checking, record->name.slots[i].object, record);
            note_mentioned(log, record->name.slots[i].to_dir);
            note_mentioned(log, record->name.slots[i].from_dir);
        }
        break;
    case WB_REC_ATTR:
        check_subject(log, record, record->attr.object, log->kind == WB_CHECK_CATALOG);
        break;
    case WB_REC_XATTR:
        check_subject(log, record, record->xattr.object, false);
        break;
    case WB_REC_PLACE:
        check_subject(log, record, record->place.self, false);
        note_mentioned(log, record->place.parent);
        break;
    case WB_REC_DATA:
        wb_external_note(log->checking, log->object, record);
        return check_extents(log, record);
    case WB_REC_ABORT:
        check_abort(log, record);
        break;
    case WB_REC_FILLER:
        log->forgotten = MAX(log->forgotten, record->filler.until);
        log->checking->forgotten |= record->filler.until > 0;
        break;
    case WB_REC_GAP:
        wb_external_note(log->checking, log->object, record);
        wb_check_report(log->checking, WB_CHECK_NOTE, "gap", at(log, record), NULL,
                        record->gap.reason == WB_GAP_ERASED ? "history was erased here on purpose"
                                                            : "states before this record are unknown");
        break;
    case WB_REC_ACTOR:
        if (log->checking->actors)
            g_hash_table_add(log->checking->actors, GUINT_TO_POINTER((guint)(record->offset / 8 + 1)));
        break;
    case WB_REC_SNAPSHOT:
        if (record->snapshot.moment > record->when)
            wrong(log, record, "wrong-snapshot", "the time of a snapshot is later than its record");
        break;
    case WB_REC_INDEX: {
        int r = check_index(log->checking, log->fd, record, log->spans);

        if (r == 0)
            wb_check_report(log->checking, WB_CHECK_NOTE, "damaged-index", at(log, record), NULL,
                            "an index does not match its records; access to old versions takes longer");
        return MIN(r, 0);
    }
    default:
        wb_external_note_unknown(log->checking, log->object, record);
        break;
    }
    return 0;
}

/* ---- the walk ------------------------------------------------------------------------------------ */

static int check_record(struct log_check *log, const struct wb_record *record)
{
    struct wb_check_span span = {record->offset, record->body_length};
    int r = check_trailer(log, record);

    if (r == 0)
        r = check_payload(log, record);
    if (r < 0)
        return r;
    check_order(log, record);
    if (!may_be_here(log, record->type))
        wrong(log, record, "wrong-type", "a record of this type is invalid in this log");
    else
        r = check_body(log, record);
    if (log->kind == WB_CHECK_CATALOG && log->first && record->type != WB_REC_PLACE && record->type != WB_REC_GAP)
        wrong(log, record, "no-place", "a catalog does not begin with the place of its directory");
    log->first = false;
    check_actor(log, record);
    if (record->type == WB_REC_INDEX)
        g_array_set_size(log->spans, 0);
    else if (log->kind == WB_CHECK_UNDO)
        g_array_append_val(log->spans, span);
    log->checking->result.records++;
    log->checking->result.bytes += record->total;
    return wb_check_progress(log->checking, 0, record->total) ? r : -ECANCELED;
}

/* Beside a daemon, what is being appended looks unfinished for a moment. */
static int await_tail(struct log_check *log)
{
    static const struct timespec pause = {.tv_nsec = 10 * 1000 * 1000};
    uint64_t end = log->reader.end;
    int r;

    for (int i = 0; i < TRIES; i++) {
        nanosleep(&pause, NULL);
        r = wb_log_reader_refresh(&log->reader);
        if (r < 0 || log->reader.end != end)
            return r < 0 ? r : 1;
    }
    return 0;
}

static int check_tail(struct log_check *log)
{
    struct wb_checking *checking = log->checking;
    uint64_t from = log->reader.position, to = log->reader.end;
    struct wb_check_where where = {log->path, NULL, from, to};

    if (from >= to)
        return 0;
    if (wb_check_mends(checking, false))
        wb_check_report_mended(checking, wb_mend_cut(checking, log->path, from, to), "torn-tail", where,
                               "cut off, and saved in lost",
                               "the log ends in %" G_GUINT64_FORMAT " bytes of an incomplete record", to - from);
    else
        wb_check_report(checking, WB_CHECK_WRONG, "torn-tail", where,
                        "can be cut off, because its change was never made",
                        "the log ends in %" G_GUINT64_FORMAT " bytes of an incomplete record", to - from);
    return 0;
}

static int walk(struct log_check *log)
{
    struct wb_record record;
    int r;

    wb_log_reader_seek(&log->reader, 0);
    log->first = true;
    for (;;) {
        r = wb_log_reader_next(&log->reader, &record);
        if (r == 0) {
            r = check_record(log, &record);
        } else if (r == WB_DAMAGED) {
            struct wb_check_where where = {log->path, NULL, log->reader.damaged_from, log->reader.damaged_to};

            wb_check_report(log->checking, WB_CHECK_LOST, "damaged-record", where, NULL,
                            log->kind == WB_CHECK_ACTORS      ? "the user and process of some changes are lost"
                            : log->kind == WB_CHECK_SNAPSHOTS ? "a record of a snapshot is lost"
                                                              : "a record is damaged; states that need it are refused");
            log->more = log->first = false;
            log->checking->damaged |= log->kind == WB_CHECK_UNDO || log->kind == WB_CHECK_CATALOG;
            g_array_set_size(log->spans, 0);
            r = 0;
        } else if (r == WB_END) {
            r = log->checking->online && log->reader.position < log->reader.end ? await_tail(log) : 0;
            if (r <= 0)
                break;
            r = 0;
        }
        if (r < 0)
            return r;
    }
    return r < 0 ? r : check_tail(log);
}

int wb_check_log(struct wb_checking *checking, const char *path, enum wb_check_log_kind kind, struct wb_object object)
{
    _cleanup_close_ int fd = openat(checking->dir_fd, path, O_RDONLY | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK);
    struct log_check log = {.checking = checking, .path = path, .kind = kind, .object = object, .fd = fd,
                            .image_fd = -1};
    const struct wb_header *header = &checking->header;
    struct wb_check_where where = {.file = path};
    int r;

    log.forgotten = checking->sound && header->forgotten ? header->created : 0;
    if (fd < 0 && (errno == ENOENT || errno == ELOOP))
        return 0; /* no log, or no file: the check of the directory reports it */
    r = fd < 0 ? -errno : wb_log_reader_init(&log.reader, fd);
    if (r < 0)
        return r;
    log.spans = g_array_new(FALSE, FALSE, sizeof(struct wb_check_span));
    if (kind == WB_CHECK_ACTORS)
        checking->actors = g_hash_table_new(NULL, NULL);
    r = check_pack(checking, path, &log.reader.bytes);
    if (r == 0)
        r = walk(&log);
    if (kind == WB_CHECK_ACTORS)
        checking->actors_end = log.reader.position;
    if (log.nobodys > 0)
        wb_check_report(checking, WB_CHECK_NOTE, "unknown-actor", where, NULL,
                        "%" G_GUINT64_FORMAT " records do not name the user and process", log.nobodys);
    g_array_unref(log.spans);
    wb_log_reader_deinit(&log.reader);
    wb_close_fd(&log.image_fd);
    return r;
}
