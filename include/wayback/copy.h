/* SPDX-License-Identifier: LGPL-2.1-or-later */
#ifndef WAYBACK_COPY_H
#define WAYBACK_COPY_H

#include <stdbool.h>
#include <stdint.h>
#include "wayback/error.h"

/*
 * Replicates a tree with its whole history, and later the changes since: the sender writes a stream, the receiver reads
 * it. Any pipe may connect them.
 */

struct wb_copy_listener {
    bool (*progress)(uint64_t bytes, uint64_t changes, void *data); /* returns false to stop; may be NULL */
    void *data;
};

/* The position of a copy. Times are nanoseconds since the epoch. */
struct wb_copy_point {
    int64_t since;        /* the copy has all changes up to this time; 0: it has none                      */
    int64_t until;        /* a stream up to this time was cut off                                          */
    uint64_t frames;      /* the number of frames of that stream that arrived (0: none, or not cut off)    */
    uint64_t check;       /* the checksum of these frames                                                  */
};

struct wb_copy_result {
    int64_t since, until; /* the end of the copy's history before, and now; `since` 0: it had none */
    uint64_t bytes;       /* of the stream                                                         */
    uint64_t records;     /* of the history                                                        */
    uint64_t objects;     /* files and directories that were sent whole again                      */
    uint64_t missing;     /* deleted files that the sender's store no longer has                   */
    uint64_t refused;     /* attributes that the receiver's file system does not support           */
    uint8_t uuid[16];     /* of the store                                                          */
    struct wb_copy_point point; /* set by wb_copy_status only                                      */
};

enum wb_copy_flags {
    WB_COPY_CHANGES = 1 << 0, /* if nothing was changed, write nothing and return 1 */
};

/*
 * Writes to `fd`, as one stream, the changes to the tree after `from->since` (0: everything, from the beginning of its
 * history) up to now; or the missing rest of a stream that was cut off, if the same stream can still be produced.
 * `store`: NULL for tree/.wayback. Takes no lock and can run while a daemon serves the tree. Returns 0, or a negative
 * errno with a line in `why`: -EAGAIN if nothing was written and a retry may succeed soon.
 */
int wb_copy_send(const char *tree, const char *store, const struct wb_copy_point *from, unsigned flags, int fd,
                 const struct wb_copy_listener *listener, struct wb_copy_result *ret, struct wb_error *why);

/*
 * Reads one stream from `fd` and applies it to `dir`: an empty or missing directory if the stream begins with the
 * history, else a copy that has all changes up to the start of the stream. Changes nothing until the stream was read to
 * its end and verified. Returns 0; 1 if `fd` has no further stream; or a negative errno with a line in `why`: -EBADMSG
 * if the stream was cut off or altered, -EBUSY if another process has the copy open for writing, -EXDEV if the copy has
 * another sender or was changed locally.
 */
int wb_copy_receive(const char *dir, int fd, const struct wb_copy_listener *listener, struct wb_copy_result *ret,
                    struct wb_error *why);

/*
 * Confines this process permanently to the copy in `dir`; call it before wb_copy_receive or wb_copy_status, in a
 * process with one thread. As far as the kernel supports it, the process can then open, create and rename only files in
 * `dir`, keeps only the capabilities needed to restore files, and can make only the system calls for files and memory.
 * For root, no other file is visible at all. `makes`: creates `dir` if it is missing, and wb_copy_confine_end removes
 * it if it is still empty. Returns 0, or a negative errno with a line in `why`.
 */
struct wb_copy_confinement {
    const char *path; /* the path of the copy from now on */
    int undo_fd;
};

int wb_copy_confine(const char *dir, bool makes, struct wb_copy_confinement *ret, struct wb_error *why);
void wb_copy_confine_end(struct wb_copy_confinement *confinement);

/*
 * Reports the position of a copy in ret->point and ret->until (0: it has no history yet). Completes an interrupted
 * wb_copy_receive first. Returns 0, or a negative errno with a line in `why`.
 */
int wb_copy_status(const char *dir, struct wb_copy_result *ret, struct wb_error *why);

/* Prints a point as one word: seconds since the epoch, followed by +UNTIL+FRAMES+CHECK if a stream was cut off. Returns
 * `text`. */
#define WB_COPY_POINT_MAX 192
char *wb_copy_point_print(const struct wb_copy_point *point, char text[WB_COPY_POINT_MAX]);
/* Returns 0 or -EINVAL. */
int wb_copy_point_parse(const char *text, struct wb_copy_point *ret);

#endif
