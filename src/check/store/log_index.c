/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "check/checking.h"

#include <errno.h>
#include <string.h>

int wb_check_index(struct wb_checking *checking, int fd, const struct wb_record *record, const GArray *records)
{
    uint8_t head[WB_HEAD_SIZE + WB_BODY_MAX], copy[WB_COPY_SIZE(WB_BODY_MAX)];
    uint64_t begin = record->offset;
    size_t used = 0;
    uint32_t count = 0;
    int r;

    /* Newest first, as they are copied. */
    for (guint i = records->len; i-- > 0; count++) {
        const struct wb_check_span *span = &g_array_index(records, struct wb_check_span, i);
        size_t length;

        if (span->offset < record->index.from)
            break;
        begin = span->offset;
        if (record->payload_length == 0)
            continue;
        r = wb_log_pread_exact(fd, head, WB_HEAD_SIZE + (size_t)span->body_length, span->offset);
        if (r < 0)
            return r == -ENODATA || r == -EBADMSG ? 0 : r;
        length = wb_record_copy(head, span->body_length, copy);
        if (used + length > record->payload_length || memcmp(checking->payload + used, copy, length) != 0)
            return 0;
        used += length;
    }
    return begin == record->index.from && count == record->index.count && used == record->payload_length;
}
