/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

/* How a long operation of a thread reports its progress, and asks whether to stop. */

#include <stdbool.h>
#include <stdint.h>

struct wb_watch {
    bool (*stopped)(void *data);                                    /* or NULL */
    void (*progress)(void *data, uint64_t files, uint64_t bytes);   /* since the last call; or NULL */
    void *data;
};

/* Sets the watch of this thread, which is not copied; NULL: none. Returns the former one. */
const struct wb_watch *wb_watch_set(const struct wb_watch *watch);

/* Whether the caller wants the operation to stop: it returns -EINTR then. */
bool wb_watch_stopped(void);
void wb_watch_progress(uint64_t files, uint64_t bytes);
