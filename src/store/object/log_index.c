/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Writing an INDEX: heads are read backward, with one small read each, down to the INDEX before.
 *
 * Gathering the copies in memory as the records are appended was considered: with many files written in turn
 * that is a lot of memory, or gone before it is needed; reading a head back costs less than half
 * a microsecond.
 */
#include "store/object/log_index.h"

#include "store/log/log_scan.h"
#include <errno.h>
#include <glib.h>

/* Bytes that hold the head and body of nearly every record of an undo log. */
#define GLANCE 320
/* How far back, in strides, where there is no INDEX to be found. */
#define REACH 4

struct gathering {
    struct wb_log_bytes bytes;
    struct wb_object object;
    uint64_t begin;       /* of what is gathered so far                            */
    uint32_t total;       /* of the record that ends there, as its trailer says    */
    uint8_t data[WB_TRAILER_SIZE + WB_SCAN_BUFFER];
    uint8_t *copies;      /* WB_PAYLOAD_MAX bytes */
    size_t length;
    bool too_long;
    struct wb_rec_index index;
};

/* The attributes of the log's own object, if the record contains them. */
static const struct wb_attrs *own_attrs(const struct wb_record *record, struct wb_object object)
{
    switch (record->type) {
    case WB_REC_DATA:
        return &record->data.attrs;
    case WB_REC_ATTR:
        return wb_object_equal(record->attr.object, object) ? &record->attr.attrs : NULL;
    case WB_REC_XATTR:
        return wb_object_equal(record->xattr.object, object) ? &record->xattr.attrs : NULL;
    default:
        return NULL;
    }
}

static void take(struct gathering *gathering, const struct wb_record *record, const uint8_t *data)
{
    struct wb_rec_index *index = &gathering->index;
    const struct wb_attrs *attrs = own_attrs(record, gathering->object);

    if (index->count++ == 0)
        index->last = record->when;
    index->first = record->when;
    index->from = record->offset;
    index->types |= 1u << (record->type & 31);
    if (record->flags & WB_RECORD_COALESCED)
        index->types |= WB_INDEX_COALESCED;
    if (attrs) {
        index->attrs_when = record->when;
        index->attrs = *attrs;
    }
    gathering->too_long |= gathering->length + WB_COPY_SIZE(record->body_length) > WB_PAYLOAD_MAX;
    if (!gathering->too_long)
        gathering->length += wb_record_copy(data, record->body_length, gathering->copies + gathering->length);
}

/* The record that ends at `begin`: 0, or -EBADMSG, -errno where it cannot be read. */
static int look_back(struct gathering *gathering, struct wb_record *ret)
{
    uint64_t at = gathering->begin - gathering->total;
    size_t before = at >= WB_TRAILER_SIZE ? WB_TRAILER_SIZE : 0, got;
    uint8_t *data = gathering->data + before;
    uint32_t body, total;
    int r;

    /* Together with the trailer of the one before it. */
    r = wb_log_bytes_read(&gathering->bytes, gathering->data, before + GLANCE, at - before, &got);
    if (r == 0 && got < before + WB_HEAD_SIZE)
        r = -EBADMSG;
    if (r == 0)
        r = wb_record_measure(data, &body, &total);
    if (r == 0 && total != gathering->total)
        r = -EBADMSG;
    if (r == 0 && WB_HEAD_SIZE + (size_t)body > GLANCE)
        r = wb_log_bytes_exact(&gathering->bytes, data, WB_HEAD_SIZE + (size_t)body, at);
    if (r == 0)
        r = wb_record_decode(data, WB_HEAD_SIZE + (size_t)body, at, ret);
    if (r < 0)
        return r;
    /* The first record of a log has none before it: the walk ends by its offset. */
    if (before && wb_record_measure_end(gathering->data, &gathering->total) < 0)
        gathering->total = 0;
    return 0;
}

/* From the tail back to the INDEX before, or as far as the log is sound. */
static void gather(struct gathering *gathering, uint64_t tail, uint64_t reach)
{
    struct wb_record record;
    uint8_t end[WB_TRAILER_SIZE];

    gathering->begin = tail;
    if (wb_log_bytes_exact(&gathering->bytes, end, sizeof(end), tail - sizeof(end)) < 0 ||
        wb_record_measure_end(end, &gathering->total) < 0)
        return;
    while (gathering->begin > 0 && tail - gathering->begin < reach) {
        if (gathering->total == 0 || gathering->total > gathering->begin || look_back(gathering, &record) < 0)
            return;
        if (record.type == WB_REC_INDEX) {
            gathering->index.previous = record.offset;
            return;
        }
        take(gathering, &record, gathering->data + MIN(record.offset, WB_TRAILER_SIZE));
        gathering->begin = record.offset;
    }
}

void wb_log_index_now(struct wb_store *store, struct wb_log *log, struct wb_object object)
{
    g_autofree struct gathering *gathering = NULL;
    g_autofree uint8_t *copies = NULL;
    struct wb_record record;
    struct iovec payload;
    int64_t now;

    gathering = g_try_malloc(sizeof(*gathering));
    copies = g_try_malloc(WB_PAYLOAD_MAX);
    if (!gathering || !copies)
        return;
    *gathering = (struct gathering){.object = object, .copies = copies};
    if (wb_log_bytes_open(&gathering->bytes, log->fd) < 0)
        return;
    gather(gathering, log->tail, REACH * store->index_stride);
    wb_log_bytes_close(&gathering->bytes);
    if (gathering->index.count == 0)
        return;
    now = wb_store_tick(store);
    /* No later than it must be: what a copy receives next may be older than now. */
    record = (struct wb_record){.type = WB_REC_INDEX, .when = MIN(now, log->last_when + 1), .index = gathering->index};
    payload = (struct iovec){copies, gathering->length};
    /* Where it cannot be written, nothing is lost but time. */
    (void)wb_log_append_locked(log, &record, &payload, gathering->too_long ? 0 : 1);
}

void wb_log_index(struct wb_store *store, struct wb_log *log, struct wb_object object, uint64_t before)
{
    if (before / store->index_stride != log->tail / store->index_stride)
        wb_log_index_now(store, log, object);
}
