/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

/* Durations and sizes as people write them, on command lines and in wayback.conf. */

#include <stdint.h>

/*
 * Parses "90s", "1h30m", "30 days", "1.5 hours", "1month", "1y" into nanoseconds. A month has 30 days here, and a year
 * 365. 5M is refused, because M may stand for months as well as for minutes. Returns 0, or WB_NOT_TIME.
 */
int wb_span_parse(const char *text, int64_t *ret);

/*
 * Parses "4096", "1.5G", "20gib", "20 GB" into bytes, in either case: K, M, G, T, P, E and KiB and so on are powers of
 * 1024, KB and so on powers of 1000. Fractions of a byte are dropped. Returns 0, or -EINVAL: also if the size is 0, or
 * greater than INT64_MAX.
 */
int wb_size_parse(const char *text, uint64_t *ret);
