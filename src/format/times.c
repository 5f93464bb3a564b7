/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "format/seal.h"
#include <errno.h>

/* Entries of the timeline. */

#define MAGIC "WBTIME2\n"
/* Up to version 9, which has no entries of gaps. */
#define MAGIC_WITHOUT_GAPS "WBTIMES\n"

void wb_times_encode(const struct wb_times_entry *entry, uint8_t data[WB_TIMES_ENTRY_SIZE])
{
    struct wb_writer to = {.data = data, .length = WB_TIMES_ENTRY_SIZE - WB_SEAL_SIZE};

    wb_put_i64(&to, entry->when);
    wb_put_object(&to, entry->object);
    wb_put_u64(&to, entry->offset | (entry->file == WB_FILE_CATALOG));
    wb_put_u32(&to, entry->actor);
    wb_seal(data, WB_TIMES_ENTRY_SIZE);
}

int wb_times_decode(const uint8_t data[WB_TIMES_ENTRY_SIZE], struct wb_times_entry *ret)
{
    struct wb_reader from = {.data = data, .length = WB_TIMES_ENTRY_SIZE - WB_SEAL_SIZE};
    uint64_t place;

    ret->when = wb_get_i64(&from);
    ret->object = wb_get_object(&from);
    place = wb_get_u64(&from);
    ret->actor = wb_get_u32(&from);
    ret->file = place & 1 ? WB_FILE_CATALOG : WB_FILE_UNDO;
    ret->offset = place & ~UINT64_C(7);
    return wb_is_sealed(data, WB_TIMES_ENTRY_SIZE) && !(place & 6) ? 0 : -EBADMSG;
}

void wb_times_encode_head(uint8_t data[WB_TIMES_ENTRY_SIZE])
{
    memset(data, 0, WB_TIMES_ENTRY_SIZE);
    memcpy(data, MAGIC, sizeof(MAGIC) - 1);
    wb_seal(data, WB_TIMES_ENTRY_SIZE);
}

int wb_times_check_head(const uint8_t data[WB_TIMES_ENTRY_SIZE])
{
    if (!wb_is_sealed(data, WB_TIMES_ENTRY_SIZE))
        return -EBADMSG;
    if (memcmp(data, MAGIC_WITHOUT_GAPS, sizeof(MAGIC_WITHOUT_GAPS) - 1) == 0)
        return -ESTALE;
    return memcmp(data, MAGIC, sizeof(MAGIC) - 1) == 0 ? 0 : -EBADMSG;
}
