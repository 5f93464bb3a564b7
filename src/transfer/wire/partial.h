/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

/* The beginning of a stream that was cut off: it may be gone on with. */

#include "store/tables/received.h"

#define WB_SPOOL_NAME "stream"

struct wb_partial {
    uint64_t frames; /* whole ones, without END; 0: there is nothing to go on with */
    uint64_t check;  /* of the last of them, which vouches for all                 */
    uint64_t length; /* in bytes */
    struct wb_stream_hello hello;
};

/* What is there that goes on where the copy ends. */
void wb_partial_find(int stage_fd, const struct wb_received *received, struct wb_partial *ret);
