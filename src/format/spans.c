/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "format/seal.h"
#include <errno.h>

/* The file of recorded spans. */

#define MAGIC "WBSPANS\n"
#define MAGIC_SIZE 8

void wb_spans_encode_head(const struct wb_spans_head *head, uint8_t data[WB_SPAN_SIZE])
{
    struct wb_writer to = {.data = data, .length = WB_SPAN_SIZE - WB_SEAL_SIZE};

    wb_put_bytes(&to, MAGIC, MAGIC_SIZE);
    wb_put_i64(&to, head->floor);
    wb_put_i64(&to, head->cut);
    wb_put_u32(&to, head->from);
    wb_seal(data, WB_SPAN_SIZE);
}

int wb_spans_decode_head(const uint8_t data[WB_SPAN_SIZE], struct wb_spans_head *ret)
{
    struct wb_reader from = {.data = data, .length = WB_SPAN_SIZE - WB_SEAL_SIZE};
    const void *magic = wb_get_bytes(&from, MAGIC_SIZE);

    ret->floor = wb_get_i64(&from);
    ret->cut = wb_get_i64(&from);
    ret->from = wb_get_u32(&from);
    return wb_is_sealed(data, WB_SPAN_SIZE) && memcmp(magic, MAGIC, MAGIC_SIZE) == 0 && ret->floor > 0 ? 0 : -EBADMSG;
}

void wb_span_encode(struct wb_span span, uint8_t data[WB_SPAN_SIZE])
{
    struct wb_writer to = {.data = data, .length = WB_SPAN_SIZE - WB_SEAL_SIZE};

    wb_put_i64(&to, span.begin);
    wb_put_i64(&to, span.end);
    wb_put_zeros(&to, WB_SPAN_SIZE - WB_SEAL_SIZE - 16);
    wb_seal(data, WB_SPAN_SIZE);
}

int wb_span_decode(const uint8_t data[WB_SPAN_SIZE], struct wb_span *ret)
{
    struct wb_reader from = {.data = data, .length = WB_SPAN_SIZE - WB_SEAL_SIZE};

    ret->begin = wb_get_i64(&from);
    ret->end = wb_get_i64(&from);
    return wb_is_sealed(data, WB_SPAN_SIZE) && ret->begin > 0 && ret->begin <= ret->end ? 0 : -EBADMSG;
}
