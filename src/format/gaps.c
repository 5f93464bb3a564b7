/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "base/checksum.h"
#include "format/cursor.h"
#include <errno.h>

/* The file of gaps that are still open. */

#define MAGIC "WBGAPS\n"
#define CHECKED (WB_GAP_SIZE - 4)

static void seal(uint8_t *data)
{
    struct wb_writer to = {.data = data + CHECKED, .length = 4};

    wb_put_u32(&to, (uint32_t)wb_checksum(data, CHECKED));
}

static int is_sealed(const uint8_t *data)
{
    struct wb_reader from = {.data = data + CHECKED, .length = 4};

    return wb_get_u32(&from) == (uint32_t)wb_checksum(data, CHECKED);
}

void wb_gap_encode(const struct wb_open_gap *gap, uint8_t data[WB_GAP_SIZE])
{
    struct wb_writer to = {.data = data, .length = CHECKED};

    wb_put_object(&to, gap->object);
    wb_put_i64(&to, gap->since);
    wb_put_u32(&to, gap->file == WB_FILE_CATALOG);
    seal(data);
}

int wb_gap_decode(const uint8_t data[WB_GAP_SIZE], struct wb_open_gap *ret)
{
    struct wb_reader from = {.data = data, .length = CHECKED};
    uint32_t kind;

    ret->object = wb_get_object(&from);
    ret->since = wb_get_i64(&from);
    kind = wb_get_u32(&from);
    ret->file = kind ? WB_FILE_CATALOG : WB_FILE_UNDO;
    return is_sealed(data) && kind <= 1 && !wb_object_is_none(ret->object) && ret->since > 0 ? 0 : -EBADMSG;
}

void wb_gap_encode_head(uint8_t data[WB_GAP_SIZE])
{
    memset(data, 0, WB_GAP_SIZE);
    memcpy(data, MAGIC, sizeof(MAGIC) - 1);
    seal(data);
}

int wb_gap_check_head(const uint8_t data[WB_GAP_SIZE])
{
    return memcmp(data, MAGIC, sizeof(MAGIC) - 1) == 0 && is_sealed(data) ? 0 : -EBADMSG;
}
