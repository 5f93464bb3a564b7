/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

/*
 * What is sent: all records with since < `when` <= until, as they are; and the tree as it was at `until`, as far as
 * these records say that it is another than at `since`. All of it is read through the history, so that it does not
 * matter what is changed meanwhile.
 */

#include "history/history.h"
#include "transfer/frames.h"
#include <glib.h>

/* A name that some record tells of. */
struct wb_sent_name {
    struct wb_object dir;
    char name[WB_NAME_MAX + 1];
};

/* What the records tell of an object. */
struct wb_sent {
    struct wb_object object; /* first: it is found by this */
    bool known;              /* it had one of the names told, at `since`: the copy has it */
    bool whole;              /* what of its content was changed is not known              */
    bool named;              /* a name of it was told                                     */
    bool buried;
    bool told;
    uint64_t least;          /* its size was at least that, all the time    */
    GArray *ranges;          /* struct wb_sent_range: bytes that were lost  */
    struct wb_sent_name lost; /* buried: the name it lost last, and when */
    int64_t lost_when;
};
struct wb_sent_range {
    uint64_t from, to;
};

struct wb_sending {
    struct wb_store *store;
    struct wb_history *history;
    struct wb_frames frames;
    int64_t since, until;
    int64_t horizon;         /* when it began: what was forgotten before,            */
    struct wb_erased erased; /* and when for the last time by name, or single versions */
    GHashTable *objects; /* struct wb_sent            */
    GHashTable *names;   /* struct wb_sent_name       */
    GHashTable *dirs;    /* struct wb_sent_name without a name: directories whose entries were told of */
    GHashTable *unknown; /* the same: and something of them is not known */
    uint8_t *data;       /* WB_RECORD_MAX bytes */
    struct wb_copy_result *result;
    struct wb_problem *why;
};

struct wb_sent *wb_sending_object(struct wb_sending *sending, struct wb_object object);
bool wb_sending_has_name(const struct wb_sending *sending, struct wb_object dir, const char *name);

/* All logs; and what they tell is noted (send_records.c). 0 or -errno with a line in `why`. */
int wb_sending_records(struct wb_sending *sending);

/* The tree at `until`, then what lost its names (send_tree.c). The same. */
int wb_sending_tree(struct wb_sending *sending);

/* One object at its spot's moment (send_object.c). 0 or -errno, see wb_history_problem. */
int wb_sending_tell(struct wb_sending *sending, struct wb_spot *spot, struct wb_sent *sent, bool whole);
