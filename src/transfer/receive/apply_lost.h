/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

/*
 * Objects that lost all their names while the stream does not say that the store keeps them: which of them the past of
 * the copy can still show as they were.
 */

#include "transfer/receive/apply.h"

enum wb_lost_mark {
    WB_LOST_TOLD = 1,    /* a record tells of it: in the graveyard it is no orphan */
    WB_LOST_SHOWN = 2,   /* one tells that it had a name                           */
    WB_LOST_CHANGED = 4, /* the stream changes it...                               */
    WB_LOST_CURRENT = 8  /* ...and tells what it became                            */
};

struct wb_lost {
    struct wb_object object; /* first: it is found by this */
    uint32_t marks;          /* enum wb_lost_mark          */
};

/* Sets the marks of all in the table: at the cost of reading all logs, if there are any. 0 or -errno. */
int wb_lost_mark(struct wb_applying *applying, struct wb_table *lost);

/* Whether it goes to the graveyard. A directory was emptied, so it is not what it was. */
bool wb_lost_is_kept(const struct wb_lost *lost, bool is_dir);
