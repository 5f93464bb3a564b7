/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

/* The changes of one file whose versions may be thinned, as its undo log and the catalogs record them. */

#include "maintain/thin/thin_catalogs.h"

/* Changes between which nothing is kept; as a rule it is one. */
struct wb_thin_change {
    int64_t first, last;
    bool in_catalog;
    struct wb_object dir; /* where it was changed; none: that is not known */
};

struct wb_thin_changes {
    struct wb_object object;
    GArray *list;   /* of struct wb_thin_change, sorted                                      */
    GArray *vias;   /* of struct wb_thin_name: by what names it was changed                  */
    bool joined;    /* versions of it went before                                            */
    uint32_t links; /* so many names it had at a time                                        */
    bool lost;      /* something was changed by no name, or it came back from the graveyard */
};

void wb_thin_changes_init(struct wb_thin_changes *changes, struct wb_object object);
void wb_thin_changes_deinit(struct wb_thin_changes *changes);

/* 0, -ENOENT: it has no undo log, and only the catalogs record it; -EBADMSG: the log is damaged; or -errno. */
int wb_thin_changes_read(struct wb_thin_changes *changes, struct wb_thin_catalogs *catalogs);
