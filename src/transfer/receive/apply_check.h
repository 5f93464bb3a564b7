/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

/* Checks of a stream before any part of it is applied (wb_apply_check). All return 0; -EBADMSG; -errno. */

#include "transfer/receive/apply.h"

/* What the stream contains about an object. */
struct wb_sent_object {
    struct wb_object object; /* first: it is found by this                               */
    struct wb_object parent; /* where it is put: of a directory; none: nowhere           */
    int64_t last[2];         /* `when` of the newest record of its undo log, its catalog */
    uint32_t mode;           /* 0: the stream does not contain it                        */
    uint16_t depth;          /* below the root; 0: not known yet                         */
    bool listed;             /* a directory of which the stream lists all entries        */
};

/* Where a log ends. */
struct wb_log_end {
    bool known;
    int64_t last;
    uint64_t tail;
};

struct wb_checking {
    struct wb_applying *applying;
    struct wb_stream_object last; /* the last OBJECT; none: 0                */
    struct wb_object listing;     /* the directory whose listing is not complete yet; or none */
    struct wb_table sent;         /* struct wb_sent_object                          */
    struct wb_table names;        /* struct wb_object: those of that listing, by wb_table_key */
    struct wb_log_end common[2];  /* actors, snapshots                       */
    bool moves;                   /* a directory that is there gets another place */
    uint64_t largest;             /* so large a file has to be possible here */
};
