/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

/*
 * A stream on its way into a copy (receive.c): it is read to its end before anything is done, and kept as it comes.
 */

#include "transfer/receive/apply.h"
#include "transfer/wire/partial.h"

struct wb_receiving {
    struct wb_applying applying;
    int src_fd, dir_fd, lock_fd, stage_fd;
    struct wb_received received;
    struct wb_partial partial;
    struct wb_stream_body first; /* frame, where that was read; its body is in the buffer */
    uint8_t first_head[WB_FRAME_HEAD];
    size_t first_length;
    bool is_new;
};
