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

/* What differs does so in its first bytes, as a rule: a call for each step would cost more than all the rest. */
static uint64_t first_word(const uint8_t *data)
{
    uint64_t word;

    memcpy(&word, data, sizeof(word));
    return word;
}

static bool is_zero(const uint8_t *data, size_t length)
{
    return (length < sizeof(uint64_t) || first_word(data) == 0) && wb_is_zero(data, length);
}

static bool is_same(const struct wb_run_scan *scan, size_t from, size_t length)
{
    const uint8_t *old = scan->old + from, *fresh = scan->fresh ? scan->fresh + from : NULL;

    if (fresh)
        return (length < sizeof(uint64_t) || first_word(old) == first_word(fresh)) && memcmp(old, fresh, length) == 0;
    return scan->to_zero && is_zero(old, length);
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
    if (scan->fresh) /* the same as below, for entirely new content */
        while (end + WB_RUN_STEP <= scan->length && first_word(scan->old + end) != first_word(scan->fresh + end))
            end += WB_RUN_STEP;
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

    while (at < scan->end && is_zero(scan->old + at, min_size(WB_RUN_STEP, scan->end - at)))
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
            while (scan->at + WB_RUN_STEP <= scan->end && first_word(scan->old + scan->at) != 0)
                scan->at += WB_RUN_STEP;
            zeros = count_zeros(scan, scan->at);
        } while (scan->at < scan->end && zeros < WB_RUN_ZERO_MIN);
    }
    ret->length = scan->at - ret->offset;
    return true;
}
