/* SPDX-License-Identifier: LGPL-2.1-or-later */

#include "capture/extents.h"
#include "base/io.h"
#include <string.h>

void wb_run_scan_init(struct wb_run_scan *scan, const void *old, const void *fresh, bool to_zero,
                      size_t length)
{
    *scan = (struct wb_run_scan){.old = old, .fresh = fresh, .length = length, .to_zero = to_zero};
}

static size_t min_size(size_t a, size_t b)
{
    return a < b ? a : b;
}

static bool is_same(const struct wb_run_scan *scan, size_t from, size_t length)
{
    if (scan->fresh)
        return memcmp(scan->old + from, scan->fresh + from, length) == 0;
    return scan->to_zero && wb_is_zero(scan->old + from, length);
}

/* The first byte at or after `from` that differs, or scan->length: large steps, then small ones. */
static size_t skip_same(const struct wb_run_scan *scan, size_t from)
{
    static const size_t steps[] = {4096, WB_RUN_STEP, 1};

    for (size_t i = 0; i < sizeof(steps) / sizeof(steps[0]); i++)
        while (from < scan->length && is_same(scan, from, min_size(steps[i], scan->length - from)))
            from += min_size(steps[i], scan->length - from);
    return from;
}

/* The end of the differing range that begins at `from`: where WB_RUN_STEP equal bytes follow. */
static size_t find_end(const struct wb_run_scan *scan, size_t from)
{
    size_t end = from;

    if (!scan->fresh && !scan->to_zero)
        return scan->length;
    while (end < scan->length && !is_same(scan, end, min_size(WB_RUN_STEP, scan->length - end)))
        end += min_size(WB_RUN_STEP, scan->length - end);
    while (end > from && is_same(scan, end - 1, 1))
        end--;
    return end;
}

/* How many zeros follow `from`, in steps; exact only at the end of the range. */
static size_t count_zeros(const struct wb_run_scan *scan, size_t from)
{
    size_t at = from;

    while (at < scan->end && wb_is_zero(scan->old + at, min_size(WB_RUN_STEP, scan->end - at)))
        at += min_size(WB_RUN_STEP, scan->end - at);
    return at - from;
}

bool wb_run_scan_next(struct wb_run_scan *scan, struct wb_run *ret)
{
    size_t zeros;

    if (scan->at >= scan->end) {
        scan->at = skip_same(scan, scan->at);
        if (scan->at >= scan->length)
            return false;
        scan->end = find_end(scan, scan->at);
    }

    ret->offset = scan->at;
    zeros = count_zeros(scan, scan->at);
    if (zeros >= WB_RUN_ZERO_MIN || scan->at + zeros == scan->end) {
        ret->zero = true;
        scan->at += zeros;
    } else {
        ret->zero = false;
        do {
            scan->at += zeros > 0 ? zeros : min_size(WB_RUN_STEP, scan->end - scan->at);
            zeros = count_zeros(scan, scan->at);
        } while (scan->at < scan->end && zeros < WB_RUN_ZERO_MIN);
    }
    ret->length = scan->at - ret->offset;
    return true;
}
