/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "transfer/wire/frames.h"

#include <errno.h>
#include <glib.h>
#include <string.h>
#include <unistd.h>

#define BUFFER (WB_FRAME_HEAD + WB_FRAME_BODY_MAX)

int wb_frames_init(struct wb_frames *frames, int fd, const struct wb_copy_listener *listener)
{
    *frames = (struct wb_frames){.fd = fd, .listener = listener, .buffer = g_try_malloc(BUFFER)};
    return frames->buffer ? 0 : -ENOMEM;
}

void wb_frames_deinit(struct wb_frames *frames)
{
    g_clear_pointer(&frames->buffer, g_free);
}

static int report_progress(struct wb_frames *frames)
{
    const struct wb_copy_listener *listener = frames->listener;

    return listener && listener->progress && !listener->progress(frames->bytes, frames->records, listener->data)
               ? -ECANCELED
               : 0;
}

/* ---- writing ------------------------------------------------------------------------------------ */

int wb_frames_flush(struct wb_frames *frames)
{
    for (size_t done = 0; done < frames->used;) {
        ssize_t n = write(frames->fd, frames->buffer + done, frames->used - done);

        if (n < 0 && errno != EINTR)
            return -errno;
        done += n > 0 ? (size_t)n : 0;
        frames->written |= n > 0;
        if (report_progress(frames) < 0)
            return -ECANCELED;
    }
    frames->used = 0;
    return 0;
}

int wb_frames_write(struct wb_frames *frames, enum wb_frame_type type, const void *head, size_t head_length,
                    const void *data, size_t length)
{
    struct wb_frame frame = {.type = type, .sequence = frames->sequence};
    uint8_t *at;
    int r = 0;

    if (head_length + length > WB_FRAME_BODY_MAX)
        return -EMSGSIZE;
    if (frames->used + WB_FRAME_HEAD + head_length + length > BUFFER)
        r = wb_frames_flush(frames);
    if (r < 0)
        return r;
    at = frames->buffer + frames->used;
    if (head_length)
        memcpy(at + WB_FRAME_HEAD, head, head_length);
    if (length)
        memcpy(at + WB_FRAME_HEAD + head_length, data, length);
    frame.length = (uint32_t)(head_length + length);
    wb_frame_encode(&frame, frames->previous, at + WB_FRAME_HEAD, at);
    frames->previous = frame.check;
    if (frames->sequence++ < frames->known) {
        if (report_progress(frames) < 0)
            return -ECANCELED;
        return frames->sequence == frames->known && frame.check != frames->known_check ? -ERANGE : 0;
    }
    frames->used += WB_FRAME_HEAD + frame.length;
    frames->bytes += WB_FRAME_HEAD + frame.length;
    return 0;
}

/* ---- reading ------------------------------------------------------------------------------------ */

int wb_frames_wait(struct wb_frames *frames)
{
    while (!frames->waited) {
        ssize_t n = read(frames->fd, &frames->ahead, 1);

        if (n == 0)
            return 1;
        if (n < 0 && errno != EINTR)
            return -errno;
        if (n < 0 && report_progress(frames) < 0)
            return -ECANCELED;
        frames->waited = n > 0;
    }
    return 0;
}

/* *ret: how many there were. */
static int read_full(struct wb_frames *frames, uint8_t *data, size_t length, size_t *ret)
{
    *ret = 0;
    if (frames->waited && length > 0) {
        data[(*ret)++] = frames->ahead;
        frames->waited = false;
    }
    while (*ret < length) {
        ssize_t n = read(frames->fd, data + *ret, length - *ret);

        if (n < 0 && errno != EINTR)
            return -errno;
        if (n == 0)
            break;
        *ret += n > 0 ? (size_t)n : 0;
    }
    return 0;
}

int wb_frames_read(struct wb_frames *frames, struct wb_stream_body *ret, uint8_t *head, size_t *ret_length)
{
    uint8_t here[WB_FRAME_HEAD];
    struct wb_frame frame;
    size_t got;
    int r = read_full(frames, here, sizeof(here), &got);

    if (r < 0)
        return r;
    if (got < sizeof(here))
        return got ? -EBADMSG : -ENODATA;
    r = wb_frame_measure(here, &frame);
    if (r == 0 && frames->sequence == 0 && frame.sequence > 0 && frame.sequence == frames->known) {
        frames->resumed = true;
        frames->sequence = frames->known;
        frames->previous = frames->known_check;
    }
    if (r == 0)
        r = read_full(frames, frames->buffer, frame.length, &got);
    if (r == 0 && got < frame.length)
        r = -EBADMSG;
    if (r == 0)
        r = wb_frame_verify(&frame, here, frames->sequence, frames->previous, frames->buffer);
    if (r == 0)
        r = wb_stream_decode(frame.type, frames->buffer, frame.length, ret);
    if (r < 0)
        return r;
    frames->previous = frame.check;
    frames->sequence++;
    frames->bytes += WB_FRAME_HEAD + frame.length;
    frames->records += ret->type == WB_FRAME_RECORD && ret->record.log != WB_STREAM_ACTORS;
    if (head)
        memcpy(head, here, sizeof(here));
    if (ret_length)
        *ret_length = frame.length;
    return report_progress(frames);
}
