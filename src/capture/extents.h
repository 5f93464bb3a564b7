/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

/*
 * Which bytes of a before-image are worth keeping: a pure function over two buffers.
 *
 * A run is a range of old bytes that the change alters; runs come ascending and disjoint. Every
 * byte that differs is in one. Equal bytes are left out but for gaps shorter than WB_RUN_STEP,
 * which would cost more as an extent of their own. Runs of zeros are separate: they need no
 * bytes in the log.
 */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define WB_RUN_STEP 64
#define WB_RUN_ZERO_MIN 512 /* fewer zeros inside other bytes are not worth an extent */

struct wb_run {
    size_t offset;
    size_t length;
    bool zero;
};

struct wb_run_scan {
    const uint8_t *old;
    const uint8_t *fresh; /* what takes its place; NULL: not known (or zeros, see to_zero) */
    size_t length;
    bool to_zero; /* the range becomes zeros */
    size_t at;
    size_t end; /* of the differing range being cut into runs; <= at: look for the next */
};

void wb_run_scan_init(struct wb_run_scan *scan, const void *old, const void *fresh, bool to_zero,
                      size_t length);
bool wb_run_scan_next(struct wb_run_scan *scan, struct wb_run *ret);
