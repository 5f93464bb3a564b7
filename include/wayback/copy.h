/* SPDX-License-Identifier: LGPL-2.1-or-later */
#ifndef WAYBACK_COPY_H
#define WAYBACK_COPY_H

#include <stdbool.h>
#include <stdint.h>
#include "wayback/error.h"

/*
 * A copy elsewhere of a tree with its whole history, and what was changed since: the sender writes a stream, the
 * receiver reads it. What is between them may be any pipe.
 */

struct wb_copy_listener {
    bool (*progress)(uint64_t bytes, uint64_t changes, void *data); /* false: stop; may be NULL */
    void *data;
};

/* How far a copy has come. */
struct wb_copy_point {
    int64_t since;        /* everything until then is there; 0: nothing is                    */
    int64_t until;        /* a stream up to this was cut off, and...                          */
    uint64_t frames;      /* ...so much of its beginning is there (0: nothing is, or was cut) */
    uint64_t check;       /* which that is                                                    */
};

struct wb_copy_result {
    int64_t since, until; /* what was there before, and what is now; `since` 0: nothing */
    uint64_t bytes;       /* of the stream                                              */
    uint64_t records;     /* of the history                                             */
    uint64_t objects;     /* files and directories that were told anew                  */
    uint64_t missing;     /* deleted files that the store of the sender has not kept    */
    uint64_t refused;     /* attributes that the receiver's file system did not take    */
    uint8_t uuid[16];     /* which store */
    struct wb_copy_point point; /* of wb_copy_status */
};

enum wb_copy_flags {
    WB_COPY_CHANGES = 1 << 0, /* where nothing was changed, nothing is written: 1 is returned */
};

/*
 * Writes to `fd` what was changed in the tree later than `from->since` (0: everything, from the beginning of its
 * history) up to now, as one stream; or what is lacking of one that was cut off, where it can still be made as it was.
 * `store`: NULL for tree/.wayback. It takes no lock and works beside a daemon. 0 or a negative errno with a line in
 * `why`: -EAGAIN where nothing was written, and it may be possible soon.
 */
int wb_copy_send(const char *tree, const char *store, const struct wb_copy_point *from, unsigned flags, int fd,
                 const struct wb_copy_listener *listener, struct wb_copy_result *ret, struct wb_problem *why);

/*
 * Reads one stream from `fd` and brings `dir` up to date: a directory that is empty or not there for a stream from the
 * beginning, else a copy that has what was changed until then. Nothing is changed before the stream was read to its
 * end and verified. 0; 1: there is no more stream; or a negative errno with a line in `why`: -EBADMSG where the
 * stream was cut off or altered, -EBUSY where somebody has the copy open for writing, -EXDEV where it is of another
 * sender, or was changed here.
 */
int wb_copy_receive(const char *dir, int fd, const struct wb_copy_listener *listener, struct wb_copy_result *ret,
                    struct wb_problem *why);

/*
 * Before wb_copy_receive or wb_copy_status: confines this process, for good, to the copy in `dir`. As far as the kernel
 * lets it, it can then open, make and rename only what is in there, keeps no other capabilities than those to make
 * files as they were, and makes no system calls but those for files and memory. Root sees no other files at all. Not
 * with other threads. `makes`: where `dir` is not there, it is made; it is removed at the end if it is still empty.
 * 0, or a negative errno with a line in `why`.
 */
struct wb_copy_confinement {
    const char *path; /* of the copy, from now on */
    int undo_fd;
};

int wb_copy_confine(const char *dir, bool makes, struct wb_copy_confinement *ret, struct wb_problem *why);
void wb_copy_confine_end(struct wb_copy_confinement *confinement);

/* What a copy has: ret->until, 0 where it has nothing yet; and ret->point. Finishes what was interrupted. */
int wb_copy_status(const char *dir, struct wb_copy_result *ret, struct wb_problem *why);

/* A point in one word: seconds since the epoch, and +UNTIL+FRAMES+CHECK where a stream was cut off. */
#define WB_COPY_POINT_MAX 192
char *wb_copy_point_print(const struct wb_copy_point *point, char text[WB_COPY_POINT_MAX]);
/* 0 or -EINVAL. */
int wb_copy_point_parse(const char *text, struct wb_copy_point *ret);

#endif
