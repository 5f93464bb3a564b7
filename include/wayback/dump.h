/* SPDX-License-Identifier: LGPL-2.1-or-later */
#ifndef WAYBACK_DUMP_H
#define WAYBACK_DUMP_H

#include <stdint.h>
#include <stdio.h>
#include "wayback/error.h"

/*
 * Prints logs as text: one record per line, damaged ones marked. For checks of the encoder, and for bug reports. Reads
 * only and needs no lock; not async-signal-safe.
 */

enum wb_dump_flags {
    WB_DUMP_JSON = 1 << 0,   /* one JSON object per line instead       */
    WB_DUMP_VERIFY = 1 << 1, /* also read and check the recorded bytes */
};

struct wb_dump_count {
    uint64_t records, damaged;
};

/* Prints the log at `path` to `out`. Returns 0, or a negative errno with a line in `why`. */
int wb_dump_log(const char *path, FILE *out, unsigned flags, struct wb_dump_count *ret, struct wb_error *why);

#endif
