/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "client/watch.h"
#include <stddef.h>

static _Thread_local const struct wb_watch *current;

const struct wb_watch *wb_watch_set(const struct wb_watch *watch)
{
    const struct wb_watch *former = current;

    current = watch;
    return former;
}

bool wb_watch_stopped(void)
{
    return current && current->stopped && current->stopped(current->data);
}

void wb_watch_progress(uint64_t files, uint64_t bytes)
{
    if (current && current->progress)
        current->progress(current->data, files, bytes);
}
