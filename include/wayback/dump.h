/* SPDX-License-Identifier: LGPL-2.1-or-later */
#ifndef WAYBACK_DUMP_H
#define WAYBACK_DUMP_H

#include <stdint.h>
#include <stdio.h>
#include "wayback/error.h"

/*
 * Logs as text: one record a line, damaged ones marked. A second opinion on the encoder, and what
 * a bug report should hold. Reads only; needs no lock; not async-signal-safe.
 */

enum wb_dump_flags {
    WB_DUMP_JSON = 1 << 0,   /* one JSON object a line instead */
    WB_DUMP_VERIFY = 1 << 1, /* read payloads too and check them */
};

struct wb_dump_count {
    uint64_t records, damaged;
};

/* Dumps the log at `path` to `out`. 0 or a negative errno with a line in `why`. */
int wb_dump_log(const char *path, FILE *out, unsigned flags, struct wb_dump_count *ret,
                struct wb_problem *why);

#endif
