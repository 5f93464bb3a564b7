/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

/*
 * What is sent: all records with since < `when` <= until, as they are; and the tree as it was at `until`, as far as
 * these records say that it is another than at `since`. All of it is read through the history, so that it does not
 * matter what is changed meanwhile.
 */

#include "history/history.h"
#include "transfer/wire/frames.h"
#include <glib.h>

/* A name that occurs in at least one record. */
struct wb_sent_name {
    struct wb_object dir;
    char name[WB_NAME_MAX + 1];
};

/* What the records contain about an object. */
struct wb_sent {
    struct wb_object object; /* first: it is found by this */
    bool known;              /* it had one of the recorded names at `since`: the copy has it */
    bool whole;              /* it is unknown which parts of its content were changed        */
    bool named;              /* a record contains a name of it                               */
    bool changed;            /* its content or attributes were changed                       */
    bool buried;
    bool sent, sent_whole;
    uint64_t least;          /* its size was at least that, all the time    */
    GArray *ranges;          /* struct wb_sent_range: bytes that were lost  */
    GArray *times;           /* struct wb_sent_time: of each record of it   */
    struct wb_sent_name lost; /* buried: the name it lost last, and when */
    int64_t lost_when;
};
struct wb_sent_range {
    uint64_t from, to;
};
struct wb_sent_time {
    int64_t when, ctime; /* of the record, and of the object before */
};

struct wb_sending {
    struct wb_store *store;
    struct wb_history *history;
    struct wb_frames frames;
    int64_t since, until;
    int64_t floor;           /* the copy has all unrecorded changes that are older (send_behind.c)          */
    int64_t horizon;         /* the horizon of the store when sending began,                                */
    struct wb_erased erased; /* and when history was last erased by name, or single versions were deleted   */
    GHashTable *objects; /* struct wb_sent            */
    GHashTable *names;   /* struct wb_sent_name       */
    GHashTable *dirs;    /* struct wb_sent_name without a name: directories whose entries are to be sent */
    GHashTable *unknown; /* the same: and something of them is not known */
    GHashTable *foreign; /* the same: and the copy may have nothing of what is below */
    GArray *gaps;        /* struct wb_open_gap: changes without a record so far (send_gaps.c) */
    guint refused;       /* so many, the first ones, because the store took no records; the others by wayback.conf */
    int64_t clock;       /* of the wall, when `until` was chosen                                 */
    uint8_t *data;       /* WB_RECORD_MAX bytes */
    struct wb_copy_result *result;
    struct wb_error *why;
};

/* The tables (send_tables.c): `objects`, and the other ones. */
GHashTable *wb_sending_objects_new(void);
GHashTable *wb_sending_names_new(void);
struct wb_sent *wb_sending_object(struct wb_sending *sending, struct wb_object object);
bool wb_sending_has_name(const struct wb_sending *sending, struct wb_object dir, const char *name);
void wb_sending_add_dir(GHashTable *table, struct wb_object dir);
bool wb_sending_has_dir(GHashTable *table, struct wb_object dir);
/* A GAP is sent: all of the object is, and of a directory what is in it. */
void wb_sending_note_gap(struct wb_sending *sending, struct wb_object object);

/* Changes without a record (send_behind.c). note_time keeps the times of a record; is_behind compares them with `attrs`
 * of the object at `until`, or before it lost its last name. `sent` may be NULL. */
int64_t wb_sending_floor(const struct wb_sending *sending);
void wb_sending_note_time(const struct wb_sending *sending, struct wb_sent *sent, int64_t when, int64_t ctime);
bool wb_sending_is_behind(const struct wb_sending *sending, const struct wb_sent *sent, const struct wb_attrs *attrs);
/* Of a directory that was, below one whose entries changed: it may have come from elsewhere with all that is in it. */
bool wb_sending_may_be_foreign(const struct wb_sending *sending, const struct wb_sent *sent, struct wb_object object,
                               const struct wb_attrs *attrs);

/* Open gaps (send_gaps.c): which there are, before `until` is chosen; the records that stand for them; and whether an
 * object that was just sent, or its directory, was changed after `until` without a record. 0, -EAGAIN, or -errno with a
 * line in `why`. */
int wb_sending_read_gaps(struct wb_sending *sending);
int wb_sending_gaps(struct wb_sending *sending);
int wb_sending_check_gap(struct wb_sending *sending, struct wb_revision *revision);

/* Sends the records of all logs, and notes what they change (send_records.c). 0 or -errno with a line in `why`. */
int wb_sending_records(struct wb_sending *sending);

/*
 * A range of bytes, with what is zeros as holes (send_bytes.c). `next_data`: where the data at or behind an offset
 * begins; -ENXIO: there is none. `read` fills all of it. 0 or -errno.
 */
struct wb_sent_bytes {
    struct wb_object object;
    enum wb_frame_type type, hole; /* of frames; hole 0: zeros need not be sent */
    int (*next_data)(const struct wb_sent_bytes *bytes, uint64_t offset, uint64_t *ret);
    int (*read)(const struct wb_sent_bytes *bytes, uint8_t *data, size_t length, uint64_t offset);
    struct wb_file_view *view; /* for these two */
    int fd;
};
int wb_sending_bytes(struct wb_sending *sending, const struct wb_sent_bytes *bytes, uint64_t from, uint64_t to);
