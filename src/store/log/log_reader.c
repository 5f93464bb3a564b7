/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Walking a log, both ways, through a window of fixed size. The bytes of payloads are passed over.
 */
#include "store/log/log.h"

#include "base/checksum.h"
#include "base/io.h"
#include "store/log/log_scan.h"
#include "wayback/error.h"
#include <errno.h>
#include <glib.h>

/* The window grows with the walk: a caller that reads the last record only does not pay for 64 KiB. */
#define WINDOW (64u * 1024)
#define WINDOW_FIRST (8u * 1024)

int wb_log_reader_init(struct wb_log_reader *reader, int fd)
{
    int r;

    *reader = (struct wb_log_reader){.fd = fd};
    r = wb_log_bytes_open(&reader->bytes, fd);
    if (r == 0)
        r = wb_log_reader_refresh(reader);
    if (r < 0)
        wb_log_bytes_close(&reader->bytes);
    reader->position = reader->end;
    return r;
}

void wb_log_reader_deinit(struct wb_log_reader *reader)
{
    g_free(reader->window);
    g_free(reader->copies);
    wb_log_bytes_close(&reader->bytes);
    reader->window = reader->copies = NULL;
    reader->window_length = 0;
}

void wb_log_reader_seek(struct wb_log_reader *reader, uint64_t position)
{
    reader->position = MIN(position, reader->end);
    reader->copies_at = reader->copies_end = 0;
    reader->known_to = 0;
}

int wb_log_reader_refresh(struct wb_log_reader *reader)
{
    int r = wb_log_bytes_size(&reader->bytes, &reader->end);

    if (r < 0)
        return r;
    /* A tail that was unfinished may have been cut and written anew. */
    reader->window_length = 0;
    return 0;
}

/*
 * Makes [offset, offset + length) present in the window (length <= WINDOW): a pointer to it in
 * *ret, or -EBADMSG where the file ends before. What else is loaded lies on the side the walk goes to.
 */
static int reader_need(struct wb_log_reader *reader, uint64_t offset, size_t length, bool backward,
                       const uint8_t **ret)
{
    uint64_t begin = offset, end;
    size_t span;
    int r;

    if (offset < reader->window_offset ||
        offset + length > reader->window_offset + reader->window_length) {
        if (!reader->window)
            reader->window = g_try_malloc(WINDOW);
        if (!reader->window)
            return -ENOMEM;
        span = reader->window_size ? reader->window_size : WINDOW_FIRST;
        reader->window_size = MIN(2 * span, WINDOW);
        end = backward ? offset + length : MIN(begin + span, reader->end);
        if (backward)
            begin = end > span ? end - span : 0;
        reader->window_offset = begin;
        reader->window_length = 0;
        /* A damaged chunk must not cost the records beside it: heads verify themselves. */
        r = wb_log_bytes_scan(&reader->bytes, reader->window, end - begin, begin, &reader->window_length);
        if (r < 0)
            return r;
        if (offset + length > begin + reader->window_length)
            return -EBADMSG;
    }
    *ret = reader->window + (offset - reader->window_offset);
    return 0;
}

/* Decodes the record at `offset` whose bytes end no later than `limit`. */
static int reader_decode(struct wb_log_reader *reader, uint64_t offset, uint64_t limit,
                         bool backward, struct wb_record *ret)
{
    size_t length = MIN(limit - offset, WB_SCAN_BUFFER);
    uint32_t body, total;
    const uint8_t *data;
    int r;

    if (length < WB_HEAD_SIZE)
        return -EBADMSG;
    r = reader_need(reader, offset, length, backward, &data);
    if (r < 0)
        return r;
    r = wb_record_measure(data, &body, &total);
    if (r < 0)
        return r;
    if (length < WB_HEAD_SIZE + (size_t)body || total > limit - offset)
        return -EBADMSG;
    return wb_record_decode(data, length, offset, ret);
}

/* The record that ends at `end`, found by its trailer. */
static int reader_decode_before(struct wb_log_reader *reader, uint64_t end, struct wb_record *ret)
{
    const uint8_t *data;
    uint32_t total;
    int r;

    if (end < WB_HEAD_SIZE + WB_TRAILER_SIZE)
        return -EBADMSG;
    r = reader_need(reader, end - WB_TRAILER_SIZE, WB_TRAILER_SIZE, true, &data);
    if (r == 0)
        r = wb_record_measure_end(data, &total);
    if (r < 0)
        return r;
    if (total < WB_HEAD_SIZE + WB_TRAILER_SIZE || total > end)
        return -EBADMSG;
    r = reader_decode(reader, end - total, end, true, ret);
    return r == 0 && ret->total != total ? -EBADMSG : r;
}

/* What is packed has no unfinished tail: behind a damaged chunk, the walk stops at its end at the latest. */
static int scan_back(struct wb_log_reader *reader, uint64_t end, struct wb_scan *ret)
{
    uint64_t unpacked = wb_log_bytes_unpacked(&reader->bytes);
    bool tail = end == reader->end && end > unpacked;
    int r = wb_log_scan_back(&reader->bytes, end, tail, ret);

    if (r == 0 && tail && ret->kind == WB_SCAN_UNFINISHED && ret->from < unpacked)
        ret->from = unpacked;
    return r;
}

int wb_log_reader_prev(struct wb_log_reader *reader, struct wb_record *ret)
{
    struct wb_scan scan;
    uint64_t end;
    int r;

    /* Each turn ends the walk or moves the position down; only the tail can take a second one. */
    while (reader->position > 0) {
        end = reader->position;
        r = reader_decode_before(reader, end, ret);
        if (r == 0) {
            reader->position = ret->offset;
            return 0;
        }
        if (r != -EBADMSG)
            return r;
        r = scan_back(reader, end, &scan);
        if (r < 0)
            return r;
        if (scan.from >= end)
            return -EBADMSG;
        reader->position = scan.from;
        if (scan.kind == WB_SCAN_DAMAGED) {
            reader->damaged_from = scan.from;
            reader->damaged_to = scan.to;
            return WB_DAMAGED;
        }
        if (scan.kind == WB_SCAN_RECORD)
            return reader_decode(reader, scan.from, end, true, ret);
    }
    return WB_END;
}

/* A last record whose trailer is still zeros was cut off by a power cut. */
static int reader_is_unfinished(struct wb_log_reader *reader, const struct wb_record *record)
{
    uint8_t data[WB_TRAILER_SIZE];
    int r;

    if (record->offset + record->total != reader->end || reader->end <= wb_log_bytes_unpacked(&reader->bytes))
        return 0;
    r = wb_log_bytes_exact(&reader->bytes, data, sizeof(data), reader->end - sizeof(data));
    if (r < 0)
        return r == -ENODATA ? 1 : r;
    return wb_is_zero(data, sizeof(data));
}

int wb_log_reader_next(struct wb_log_reader *reader, struct wb_record *ret)
{
    uint64_t begin = reader->position;
    struct wb_scan scan;
    int r;

    if (begin >= reader->end)
        return WB_END;
    r = reader_decode(reader, begin, reader->end, false, ret);
    if (r == 0) {
        r = reader_is_unfinished(reader, ret);
        if (r != 0)
            return r < 0 ? r : WB_END;
        reader->position = begin + ret->total;
        return 0;
    }
    if (r != -EBADMSG)
        return r;
    r = wb_log_scan_forward(&reader->bytes, begin, reader->end, &scan);
    if (r < 0)
        return r;
    /* Nothing sound follows; but packed bytes were whole once. */
    if (scan.kind != WB_SCAN_DAMAGED && begin < wb_log_bytes_unpacked(&reader->bytes))
        scan = (struct wb_scan){WB_SCAN_DAMAGED, begin, wb_log_bytes_unpacked(&reader->bytes)};
    if (scan.kind != WB_SCAN_DAMAGED)
        return WB_END;
    reader->damaged_from = scan.from;
    reader->damaged_to = scan.to;
    reader->position = scan.to;
    return WB_DAMAGED;
}

int wb_log_bytes_payload(const struct wb_log_bytes *bytes, const struct wb_record *record, void *data)
{
    int r;

    r = wb_log_bytes_exact(bytes, data, record->payload_length, record->payload_offset);
    if (r < 0)
        return r == -ENODATA ? -EBADMSG : r;
    if (record->payload_length > 0 &&
        wb_checksum(data, record->payload_length) != record->payload_check)
        return -EBADMSG;
    return 0;
}

int wb_log_read_payload(int fd, const struct wb_record *record, void *data)
{
    struct wb_log_bytes bytes;
    int r = wb_log_bytes_open(&bytes, fd);

    if (r == 0)
        r = wb_log_bytes_payload(&bytes, record, data);
    wb_log_bytes_close(&bytes);
    return r;
}
