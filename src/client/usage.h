/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

/* Measures the space of history: the request WB_CONTROL_USAGE, repeated until its result is complete. */

#include "client/control.h"

struct wb_usage_listener {
    void (*begin)(void *data); /* once, and again if the measurement begins anew: forget what came before   */
    /* Each reply: with WB_CONTROL_USAGE_BUILDING the progress, else directories. 0, or -errno to stop. */
    int (*reply)(void *data, const struct wb_control *reply);
    void *data;
};

/*
 * The space of the history of `path`, with the directories `depth` levels below it, and at most `most` files and
 * programs, those with the largest history (an older daemon lists none). *flags: WB_CONTROL_USAGE_*.
 * `listener` may be NULL. 0 or -errno; -EINTR: wb_watch_stopped(); -ETIMEDOUT: it makes no progress.
 */
int wb_request_usage(int dir_fd, const char *path, unsigned depth, unsigned most,
                     const struct wb_usage_listener *listener, struct wb_control_usage *ret, unsigned *flags);
