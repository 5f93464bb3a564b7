/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "base/checksum.h"
#include "format/cursor.h"
#include <errno.h>

/* Slots of the file of stages. */

#define CHECKED (WB_STAGE_SIZE - 8)

void wb_stage_encode(const struct wb_stage_entry *entry, uint8_t data[WB_STAGE_SIZE])
{
    struct wb_writer to = {.data = data, .length = WB_STAGE_SIZE};

    wb_put_i64(&to, entry->begin);
    wb_put_object(&to, entry->object);
    wb_put_object(&to, entry->dir);
    wb_put_u32(&to, entry->actor);
    wb_put_u32(&to, 0);
    wb_put_attrs(&to, &entry->attrs);
    wb_put_i64(&to, entry->newest_own);
    wb_put_i64(&to, entry->newest_dir);
    wb_put_zeros(&to, CHECKED - to.position);
    wb_put_u64(&to, wb_checksum(data, CHECKED));
}

int wb_stage_decode(const uint8_t data[WB_STAGE_SIZE], struct wb_stage_entry *ret)
{
    struct wb_reader from = {.data = data, .length = WB_STAGE_SIZE};

    ret->begin = wb_get_i64(&from);
    ret->object = wb_get_object(&from);
    ret->dir = wb_get_object(&from);
    ret->actor = wb_get_u32(&from);
    wb_get_zeros(&from, 4);
    wb_get_attrs(&from, &ret->attrs);
    ret->newest_own = wb_get_i64(&from);
    ret->newest_dir = wb_get_i64(&from);
    wb_get_zeros(&from, CHECKED - from.position);
    if (wb_get_u64(&from) != wb_checksum(data, CHECKED) || !wb_reader_complete(&from))
        return -EBADMSG;
    return ret->begin > 0 && !wb_object_is_none(ret->object) && S_ISREG(ret->attrs.mode) &&
                   ret->attrs.size <= INT64_MAX
               ? 0
               : -EBADMSG;
}
