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

/*
 * A stream begins, or goes on where it was cut off: 0, 1 where there is none, or -errno with a line in `why`. Where
 * there is no copy yet, it comes before one is made.
 */
int wb_receiving_read_first(struct wb_receiving *receiving, struct wb_frames *frames, struct wb_problem *why);

/* Everything up to the end mark into the spool: the same results. */
int wb_receiving_spool(struct wb_receiving *receiving, struct wb_frames *frames, struct wb_problem *why);
