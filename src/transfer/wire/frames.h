/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

/* Frames out of and into a descriptor: a pipe, a socket, a file. */

#include "format/stream.h"
#include "wayback/copy.h"
#include <sys/uio.h>

struct wb_frames {
    int fd;
    uint64_t sequence; /* of the next frame          */
    uint64_t previous; /* check of the one before it */
    uint64_t bytes;
    uint64_t records;
    const struct wb_copy_listener *listener;
    uint8_t *buffer;   /* writing: what is not yet written; reading: the body */
    size_t used;
    bool written;      /* some of it went out */
    uint64_t known;    /* so many frames the other side has: they are not written, nor read once more...  */
    uint64_t known_check; /* ...if the last of them is this one */
    bool resumed;      /* reading: it begins behind them      */
    bool waited;       /* reading: the next byte is `ahead` */
    uint8_t ahead;
};

int wb_frames_init(struct wb_frames *frames, int fd, const struct wb_copy_listener *listener);
void wb_frames_deinit(struct wb_frames *frames);

/* A body in two pieces. -ECANCELED where the listener wants no more; -ERANGE: what is known is another stream. */
int wb_frames_write(struct wb_frames *frames, enum wb_frame_type type, const void *head, size_t head_length,
                    const void *data, size_t length);
int wb_frames_flush(struct wb_frames *frames);

/* Waits until something can be read. 0, 1: it has ended, -ECANCELED or -errno. */
int wb_frames_wait(struct wb_frames *frames);

/*
 * The next frame, which is verified and decoded; *ret points into the buffer until the next call. 0; -ENODATA: nothing
 * comes any more (at the beginning of a frame); -EBADMSG: it ends within a frame, or is not what was written.
 * The first one may be the one after those that are known (`resumed`).
 * -EPROTONOSUPPORT; -errno. `head` (WB_FRAME_HEAD bytes) may be NULL.
 */
int wb_frames_read(struct wb_frames *frames, struct wb_stream_body *ret, uint8_t *head, size_t *ret_length);
