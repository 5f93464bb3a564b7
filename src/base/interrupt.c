/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "base/interrupt.h"

#include <stddef.h>

/* A record is read in less than a microsecond, and a signal may wait for a millisecond. */
#define CALLS 1024

static _Thread_local struct {
    bool (*is_abandoned)(void *data);
    void *data;
    unsigned calls;
} watch;

void wb_interrupt_watch(bool (*is_abandoned)(void *data), void *data)
{
    watch.is_abandoned = is_abandoned;
    watch.data = data;
    watch.calls = 0;
}

bool wb_interrupted(void)
{
    return watch.is_abandoned && ++watch.calls % CALLS == 0 && watch.is_abandoned(watch.data);
}
