/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* The value of WB_FLAGS_NAME: the flags of an inode. */
#include "format/cursor.h"
#include "format/format.h"

#include <errno.h>

void wb_flags_encode(const struct wb_flags *flags, uint8_t data[WB_FLAGS_SIZE])
{
    struct wb_writer to = {data, WB_FLAGS_SIZE, 0, false};

    wb_put_u32(&to, flags->flags);
    wb_put_u32(&to, flags->xflags);
    wb_put_u32(&to, flags->project);
    wb_put_u32(&to, flags->extent_size);
    wb_put_u32(&to, flags->cow_extent_size);
    wb_put_zeros(&to, 4);
}

int wb_flags_decode(const void *data, size_t length, struct wb_flags *ret)
{
    struct wb_reader from = {.data = data, .length = length};

    if (length != WB_FLAGS_SIZE)
        return -EBADMSG;
    ret->flags = wb_get_u32(&from);
    ret->xflags = wb_get_u32(&from);
    ret->project = wb_get_u32(&from);
    ret->extent_size = wb_get_u32(&from);
    ret->cow_extent_size = wb_get_u32(&from);
    wb_get_zeros(&from, 4);
    return wb_reader_complete(&from) ? 0 : -EBADMSG;
}
