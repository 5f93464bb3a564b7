/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "format/seal.h"
#include <errno.h>

/* The file of gaps that are still open. */

#define MAGIC "WBGAPS\n"

void wb_gap_encode(const struct wb_open_gap *gap, uint8_t data[WB_GAP_SIZE])
{
    struct wb_writer to = {.data = data, .length = WB_GAP_SIZE - WB_SEAL_SIZE};

    wb_put_object(&to, gap->object);
    wb_put_i64(&to, gap->since);
    wb_put_u32(&to, gap->file == WB_FILE_CATALOG);
    wb_seal(data, WB_GAP_SIZE);
}

int wb_gap_decode(const uint8_t data[WB_GAP_SIZE], struct wb_open_gap *ret)
{
    struct wb_reader from = {.data = data, .length = WB_GAP_SIZE - WB_SEAL_SIZE};
    uint32_t kind;

    ret->object = wb_get_object(&from);
    ret->since = wb_get_i64(&from);
    kind = wb_get_u32(&from);
    ret->file = kind ? WB_FILE_CATALOG : WB_FILE_UNDO;
    if (!wb_is_sealed(data, WB_GAP_SIZE) || kind > 1 || wb_object_is_none(ret->object) || ret->since <= 0)
        return -EBADMSG;
    return 0;
}

void wb_gap_encode_head(uint8_t data[WB_GAP_SIZE])
{
    memset(data, 0, WB_GAP_SIZE);
    memcpy(data, MAGIC, sizeof(MAGIC) - 1);
    wb_seal(data, WB_GAP_SIZE);
}

int wb_gap_check_head(const uint8_t data[WB_GAP_SIZE])
{
    return memcmp(data, MAGIC, sizeof(MAGIC) - 1) == 0 && wb_is_sealed(data, WB_GAP_SIZE) ? 0 : -EBADMSG;
}

const char *wb_gap_reason(unsigned reason)
{
    static const char *const reasons[] = {
        [WB_GAP_REFUSED] = "the store took no record",
        [WB_GAP_EXTERNAL] = "changed behind the mount",
        [WB_GAP_ERASED] = "erased",
        [WB_GAP_POWER] = "records lost in a power cut",
        [WB_GAP_UNSEEN] = "changed while nothing was recorded",
        [WB_GAP_DAMAGE] = "records missing or damaged",
        [WB_GAP_POLICY] = "not recorded by wayback.conf",
    };

    return reason < sizeof(reasons) / sizeof(reasons[0]) && reasons[reason] ? reasons[reason] : "reason not known";
}
