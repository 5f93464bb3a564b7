/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * One record, header and entry of the timeline, from bytes. The checksums are made right first: they protect
 * against accidents, not against an attacker, who can compute them.
 */
#include "base/checksum.h"
#include "format/bodies.h"
#include "fuzz.h"
#include <endian.h>
#include <glib.h>

static void seal(uint8_t *at, const uint8_t *data, size_t length)
{
    uint64_t check = htole64(wb_checksum(data, length));

    memcpy(at, &check, sizeof(check));
}

static void one_record(const uint8_t *data, size_t size)
{
    uint8_t joined[40 + WB_BODY_MAX], again[WB_HEAD_SIZE + WB_BODY_MAX];
    g_autofree uint8_t *bytes = NULL;
    struct wb_record record;
    uint32_t body, total;
    size_t length = MAX(size, WB_HEAD_SIZE);

    bytes = g_malloc0(length);
    if (size)
        memcpy(bytes, data, size);
    memcpy(bytes, "WBK1", 4);
    if (wb_record_measure(bytes, &body, &total) < 0)
        return;
    g_assert_cmpuint(body, <=, WB_BODY_MAX);
    if (WB_HEAD_SIZE + body > length) {
        bytes = g_realloc(bytes, WB_HEAD_SIZE + body);
        memset(bytes + length, 0, WB_HEAD_SIZE + body - length);
    }
    memcpy(joined, bytes, 40);
    memcpy(joined + 40, bytes + WB_HEAD_SIZE, body);
    seal(bytes + 40, joined, 40 + body);
    if (wb_record_decode(bytes, WB_HEAD_SIZE + body, 8, &record) < 0)
        return;
    g_assert_cmpuint(record.total, ==, total);
    if (wb_body_codec(record.type)) {
        g_assert_cmpint(wb_record_encode(&record, again), ==, (int)(WB_HEAD_SIZE + body));
        g_assert_cmpint(memcmp(again, bytes, WB_HEAD_SIZE + body), ==, 0);
    }
}

static void one_copy(const uint8_t *data, size_t size)
{
    g_autofree uint8_t *copy = g_memdup2(data, size);
    struct wb_record record;
    uint32_t body, total;

    if (copy && wb_record_uncopy(copy, size, &body, &total) == 0)
        wb_record_decode(copy, size, 0, &record);
}

static void one_identity(const uint8_t *data, size_t size)
{
    uint8_t bytes[WB_IDENTITIES_HEAD] = "WBIDENT\n", again[WB_IDENTITIES_HEAD];
    struct wb_identities_head head;
    struct wb_identity identity;

    memcpy(bytes + 8, data, MIN(size, sizeof(bytes) - 8));
    seal(bytes + 56, bytes, 56);
    if (wb_identities_decode_head(bytes, &head) == 0) {
        wb_identities_encode_head(&head, again);
        g_assert_cmpint(memcmp(again, bytes, sizeof(again)), ==, 0);
    }
    wb_identity_decode(bytes, &identity);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    uint8_t header[WB_HEADER_SIZE] = "WAYBACK\n", entry[WB_TIMES_ENTRY_SIZE];
    struct wb_times_entry times;
    struct wb_header head;
    int64_t known;

    one_record(data, size);
    one_copy(data, size);
    memcpy(header + 8, data, MIN(size, WB_HEADER_SIZE - 8));
    wb_header_decode(header, sizeof(header), &head);
    seal(header + 56, header, 56);
    wb_header_decode(header, sizeof(header), &head);
    wb_header_decode(data, size, &head);
    memset(entry, 0, sizeof(entry));
    memcpy(entry, data, MIN(size, sizeof(entry)));
    wb_times_check_head(entry);
    wb_times_decode(entry, &times);
    wb_clock_note_decode(data, size, &known, &known);
    one_identity(data, size);
    return 0;
}
