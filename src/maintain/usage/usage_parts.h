/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

/* The parts of maintain/usage; for its own files only. */

#include "maintain/usage/usage.h"

/* An object that has files in the store, and is no directory. */
struct wb_usage_thing {
    struct wb_object object;
    struct wb_object dir; /* where it was last named, */
    char *name;           /* how,                     */
    int64_t named;        /* and when that was        */
    int64_t lost;         /* when it last lost a name to nothing */
    uint32_t lost_by;     /* the actor of that                   */
    int64_t buried;       /* by its inode, if no record shows it */
    uint64_t body;        /* bytes of the file itself */
    struct wb_usage_total total;
    struct wb_usage_shares shares;
};
