/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "maintain/rewrite/log_edits.h"

#include "base/checksum.h"
#include <errno.h>
#include <string.h>

void wb_log_edits_init(struct wb_log_edits *edits)
{
    *edits = (struct wb_log_edits){.list = g_array_new(FALSE, FALSE, sizeof(struct wb_log_edit)),
                                        .bytes = g_byte_array_new(),
                                        .heads = g_hash_table_new_full(g_int64_hash, g_int64_equal, g_free, NULL)};
}

void wb_log_edits_deinit(struct wb_log_edits *edits)
{
    g_array_unref(edits->list);
    g_byte_array_unref(edits->bytes);
    g_hash_table_unref(edits->heads);
}

static void add_bytes(struct wb_log_edits *edits, uint64_t offset, const uint8_t *data, size_t length)
{
    struct wb_log_edit edit = {.offset = offset, .length = length, .at = edits->bytes->len};

    g_byte_array_append(edits->bytes, data, (guint)length);
    g_array_append_val(edits->list, edit);
}

void wb_log_edits_bytes(struct wb_log_edits *edits, uint64_t offset, const uint8_t *data, size_t length,
                         uint64_t total)
{
    gint64 *key = g_new(gint64, 1);

    add_bytes(edits, offset, data, length);
    *key = (gint64)offset;
    g_hash_table_insert(edits->heads, key, GUINT_TO_POINTER(edits->list->len));
    edits->end = MAX(edits->end, offset + total);
}

int wb_log_edits_drop(struct wb_log_edits *edits, const struct wb_filler_run *run)
{
    struct wb_log_edit edit = {.offset = run->from, .length = run->to - run->from, .kind = WB_EDIT_DROP, .run = *run};

    if (run->until > run->when)
        return -EBADMSG;
    g_array_append_val(edits->list, edit);
    edits->end = MAX(edits->end, run->to);
    return 0;
}

int wb_log_edits_empty(struct wb_log_edits *edits, struct wb_record *record, uint64_t from, uint64_t to)
{
    uint8_t head[WB_FILLER_HEAD], end[WB_TRAILER_SIZE];
    int r = wb_filler_encode_record(record, from, to, head, end);

    if (r < 0)
        return r;
    wb_log_edits_bytes(edits, from, head, sizeof(head), to - from);
    wb_log_edits_zeros(edits, from + sizeof(head), record->payload_length);
    wb_log_edits_bytes(edits, to - sizeof(end), end, sizeof(end), sizeof(end));
    return 0;
}

int wb_log_edits_replace(struct wb_log_edits *edits, const struct wb_record *record)
{
    uint8_t data[WB_HEAD_SIZE + WB_BODY_MAX];
    struct wb_record copy = *record;
    int length;

    copy.when = record->written;
    length = wb_record_encode(&copy, data);
    /* One of a later version, of which only a part was understood. */
    if (length < 0 || copy.body_length != record->body_length || copy.total != record->total)
        return -EBADMSG;
    wb_log_edits_bytes(edits, record->offset, data, (size_t)length, record->total);
    return 0;
}

void wb_log_edits_zeros(struct wb_log_edits *edits, uint64_t offset, uint64_t length)
{
    g_array_append_val(edits->list,
                       ((struct wb_log_edit){.offset = offset, .length = length, .kind = WB_EDIT_ZEROS}));
}

/* ---- copies in INDEX records ----------------------------------------------------------------- */

static const struct wb_log_edit *edit_of(const struct wb_log_edits *edits, uint64_t offset)
{
    gint64 key = (gint64)offset;
    guint index = GPOINTER_TO_UINT(g_hash_table_lookup(edits->heads, &key));

    return index > 0 ? &g_array_index(edits->list, struct wb_log_edit, index - 1) : NULL;
}

/* Whether all copies are what they should be, so that they can be followed; those of replaced records become theirs. */
static bool edit_copies(const struct wb_log_edits *edits, const struct wb_record *index, uint8_t *copies)
{
    uint8_t one[WB_HEAD_SIZE + WB_BODY_MAX + 8];
    uint64_t offset = index->offset;
    uint32_t body, total;
    size_t size;

    for (size_t at = 0; at < index->payload_length; at += size) {
        size_t left = index->payload_length - at;

        memcpy(one, copies + at, MIN(left, sizeof(one)));
        if (wb_record_uncopy(one, MIN(left, sizeof(one)), &body, &total) < 0 || total > offset - index->index.from)
            return false;
        size = WB_COPY_SIZE(body);
        offset -= total;
        const struct wb_log_edit *edit = edit_of(edits, offset);
        if (edit && edit->length != WB_HEAD_SIZE + (size_t)body)
            return false;
        if (edit)
            wb_record_copy(edits->bytes->data + edit->at, body, copies + at);
    }
    return offset == index->index.from;
}

static int edit_index(struct wb_log_edits *edits, int fd, const struct wb_record *index)
{
    g_autofree uint8_t *copies = g_try_malloc(MAX(index->payload_length, 1));
    struct wb_record changed = *index;
    int r = 0;

    if (!copies)
        return -ENOMEM;
    changed.index.types |= WB_INDEX_COALESCED;
    if (index->payload_length > 0)
        r = wb_log_read_payload(fd, index, copies);
    if (r < 0 && r != -EBADMSG)
        return r;
    /* Nobody uses copies that do not verify, or do not fit. */
    if (r == 0 && index->payload_length > 0 && edit_copies(edits, index, copies)) {
        changed.payload_check = wb_checksum(copies, index->payload_length);
        add_bytes(edits, index->payload_offset, copies, index->payload_length);
    } else if (index->payload_length > 0) {
        changed.payload_check = ~index->payload_check;
    }
    return wb_log_edits_replace(edits, &changed);
}

int wb_log_edits_indexes(struct wb_log_edits *edits, int fd, const GArray *indexes)
{
    guint count = edits->list->len;
    int r = 0;

    /* Both are few beside the log; a record is in one INDEX only. */
    for (guint i = 0; r == 0 && i < indexes->len; i++) {
        const struct wb_record *index = &g_array_index(indexes, struct wb_record, i);
        bool has = false;

        for (guint k = 0; k < count && !has; k++) {
            uint64_t offset = g_array_index(edits->list, struct wb_log_edit, k).offset;

            has = offset >= index->index.from && offset < index->offset;
        }
        if (has)
            r = edit_index(edits, fd, index);
    }
    return r;
}

/* ---- over the log ---------------------------------------------------------------------------- */

static gint by_offset(const void *a, const void *b)
{
    const struct wb_log_edit *one = a, *other = b;

    return one->offset < other->offset ? -1 : one->offset > other->offset;
}

void wb_log_edits_settle(struct wb_log_edits *edits)
{
    g_array_sort(edits->list, by_offset);
    g_hash_table_remove_all(edits->heads);
}

void wb_log_edits_apply(const struct wb_log_edits *edits, uint8_t *bytes, size_t length, uint64_t offset)
{
    guint low = 0, high = edits->list->len;

    while (low < high) {
        guint middle = low + (high - low) / 2;
        const struct wb_log_edit *edit = &g_array_index(edits->list, struct wb_log_edit, middle);

        if (edit->offset + edit->length <= offset)
            low = middle + 1;
        else
            high = middle;
    }
    for (; low < edits->list->len; low++) {
        const struct wb_log_edit *edit = &g_array_index(edits->list, struct wb_log_edit, low);
        uint64_t from = MAX(edit->offset, offset), to = MIN(edit->offset + edit->length, offset + length);

        if (edit->offset >= offset + length)
            break;
        if (edit->kind == WB_EDIT_DROP)
            wb_filler_fill(&edit->run, bytes, length, offset);
        else if (edit->kind == WB_EDIT_ZEROS)
            memset(bytes + (from - offset), 0, to - from);
        else
            memcpy(bytes + (from - offset), edits->bytes->data + edit->at + (from - edit->offset), to - from);
    }
}
