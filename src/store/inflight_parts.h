/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

/* What inflight.c and inflight_look.c share. */

#include "store/parts.h"

struct wb_inflight {
    int fd;
    _Atomic int64_t last;
    _Atomic int64_t changed; /* the `when` of the newest change */
    int64_t slot_changed[WB_INFLIGHT_SLOTS];
    _Atomic uint64_t busy; /* one bit a slot */
    _Atomic int64_t whens[WB_INFLIGHT_SLOTS]; /* of slots taken in this process; 0: not known yet, or free */
    _Atomic uint64_t set_aside;
    struct wb_inflight_aside asides[WB_INFLIGHT_SLOTS];
    _Atomic uint64_t sequence;
    bool lost_power;
    uint64_t left_busy; /* slots that recovery has yet to look at */
    unsigned left_count;
    struct wb_inflight_entry left[WB_INFLIGHT_SLOTS];
    pthread_mutex_t mark_lock;
    int64_t mark;
};
