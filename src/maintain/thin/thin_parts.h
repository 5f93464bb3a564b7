/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

/* What the files of thinning share. */

#include "history/content/extent_map.h"
#include "maintain/prune/prune_parts.h"
#include "maintain/rewrite/log_edits.h"
#include "maintain/thin/thin.h"
#include "store/log/log.h"
#include <glib.h>

/* ---- what counts together (thin_log.c) ----------------------------------------------------- */

/* A record as it is in the log; its head and body are kept as bytes. */
struct wb_thin_part {
    uint64_t offset;
    int64_t change; /* that it is of: its `when`, or that of the end of its stage */
    size_t at;
    uint32_t length;
    bool joined; /* to the change before: it was, or is going to be */
};

/* Changes that count together, newest record first; and the one being read. */
struct wb_thin_group {
    GArray *parts;     /* of struct wb_thin_part */
    GByteArray *heads;
};
