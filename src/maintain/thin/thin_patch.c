/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Other bytes in the place of some of a log, of the same length. They are put over those that are read while the log
 * is packed anew.
 */
#include "maintain/thin/thin_parts.h"

#include "base/checksum.h"
#include <errno.h>
#include <string.h>

void wb_thin_patches_init(struct wb_thin_patches *patches)
{
    *patches = (struct wb_thin_patches){.list = g_array_new(FALSE, FALSE, sizeof(struct wb_thin_patch)),
                                        .bytes = g_byte_array_new(),
                                        .heads = g_hash_table_new_full(g_int64_hash, g_int64_equal, g_free, NULL)};
}

void wb_thin_patches_deinit(struct wb_thin_patches *patches)
{
    g_array_unref(patches->list);
    g_byte_array_unref(patches->bytes);
    g_hash_table_unref(patches->heads);
}

static void add_bytes(struct wb_thin_patches *patches, uint64_t offset, const uint8_t *data, size_t length)
{
    struct wb_thin_patch patch = {.offset = offset, .length = (uint32_t)length, .at = patches->bytes->len};

    g_byte_array_append(patches->bytes, data, (guint)length);
    g_array_append_val(patches->list, patch);
}

void wb_thin_patch_bytes(struct wb_thin_patches *patches, uint64_t offset, const uint8_t *data, size_t length,
                         uint64_t total)
{
    gint64 *key = g_new(gint64, 1);

    add_bytes(patches, offset, data, length);
    *key = (gint64)offset;
    g_hash_table_insert(patches->heads, key, GUINT_TO_POINTER(patches->list->len));
    patches->end = MAX(patches->end, offset + total);
}

int wb_thin_patch_record(struct wb_thin_patches *patches, const struct wb_record *record)
{
    uint8_t data[WB_HEAD_SIZE + WB_BODY_MAX];
    struct wb_record copy = *record;
    int length;

    copy.when = record->written;
    length = wb_record_encode(&copy, data);
    /* One of a later version, of which only a part was understood. */
    if (length < 0 || copy.body_length != record->body_length || copy.total != record->total)
        return -EBADMSG;
    wb_thin_patch_bytes(patches, record->offset, data, (size_t)length, record->total);
    return 0;
}

void wb_thin_patch_zeros(struct wb_thin_patches *patches, uint64_t offset, uint64_t length)
{
    g_array_append_val(patches->list,
                       ((struct wb_thin_patch){.offset = offset, .length = (uint32_t)length, .zeros = true}));
}

/* ---- copies in INDEX records ----------------------------------------------------------------- */

static const struct wb_thin_patch *patch_of(const struct wb_thin_patches *patches, uint64_t offset)
{
    gint64 key = (gint64)offset;
    guint index = GPOINTER_TO_UINT(g_hash_table_lookup(patches->heads, &key));

    return index > 0 ? &g_array_index(patches->list, struct wb_thin_patch, index - 1) : NULL;
}

/* Whether all copies are what they should be, so that they can be followed; those of patched records become theirs. */
static bool patch_copies(const struct wb_thin_patches *patches, const struct wb_record *index, uint8_t *copies)
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
        const struct wb_thin_patch *patch = patch_of(patches, offset);
        if (patch && patch->length != WB_HEAD_SIZE + (size_t)body)
            return false;
        if (patch)
            wb_record_copy(patches->bytes->data + patch->at, body, copies + at);
    }
    return offset == index->index.from;
}

static int patch_index(struct wb_thin_patches *patches, int fd, const struct wb_record *index)
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
    if (r == 0 && index->payload_length > 0 && patch_copies(patches, index, copies)) {
        changed.payload_check = wb_checksum(copies, index->payload_length);
        add_bytes(patches, index->payload_offset, copies, index->payload_length);
    } else if (index->payload_length > 0) {
        changed.payload_check = ~index->payload_check;
    }
    return wb_thin_patch_record(patches, &changed);
}

int wb_thin_patch_indexes(struct wb_thin_patches *patches, int fd, const GArray *indexes)
{
    guint count = patches->list->len;
    int r = 0;

    /* Both are few beside the log; a record is in one INDEX only. */
    for (guint i = 0; r == 0 && i < indexes->len; i++) {
        const struct wb_record *index = &g_array_index(indexes, struct wb_record, i);
        bool has = false;

        for (guint k = 0; k < count && !has; k++) {
            uint64_t offset = g_array_index(patches->list, struct wb_thin_patch, k).offset;

            has = offset >= index->index.from && offset < index->offset;
        }
        if (has)
            r = patch_index(patches, fd, index);
    }
    return r;
}

/* ---- over the log ---------------------------------------------------------------------------- */

static gint by_offset(const void *a, const void *b)
{
    const struct wb_thin_patch *one = a, *other = b;

    return one->offset < other->offset ? -1 : one->offset > other->offset;
}

void wb_thin_patches_settle(struct wb_thin_patches *patches)
{
    g_array_sort(patches->list, by_offset);
    g_hash_table_remove_all(patches->heads);
}

void wb_thin_overlay(const struct wb_thin_patches *patches, uint8_t *bytes, size_t length, uint64_t offset)
{
    guint low = 0, high = patches->list->len;

    while (low < high) {
        guint middle = low + (high - low) / 2;
        const struct wb_thin_patch *patch = &g_array_index(patches->list, struct wb_thin_patch, middle);

        if (patch->offset + patch->length <= offset)
            low = middle + 1;
        else
            high = middle;
    }
    for (; low < patches->list->len; low++) {
        const struct wb_thin_patch *patch = &g_array_index(patches->list, struct wb_thin_patch, low);
        uint64_t from = MAX(patch->offset, offset), to = MIN(patch->offset + patch->length, offset + length);

        if (patch->offset >= offset + length)
            break;
        if (patch->zeros)
            memset(bytes + (from - offset), 0, to - from);
        else
            memcpy(bytes + (from - offset), patches->bytes->data + patch->at + (from - patch->offset), to - from);
    }
}
