/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Bytes of content and of images, in pieces that begin at fixed offsets: a piece of zeros counts as a hole, however
 * it is stored, so that the same stream can be made once more. SEEK_DATA is used to skip holes without reading them.
 */
#include "transfer/send/send.h"

#include "base/io.h"
#include <errno.h>

/* Zeros that were not sent yet. */
struct zeros {
    uint64_t from, to;
};

static int send_zeros(struct wb_sending *sending, const struct wb_sent_bytes *bytes, struct zeros *zeros)
{
    struct wb_stream_hole hole = {.object = bytes->object, .offset = zeros->from, .length = zeros->to - zeros->from};
    uint8_t data[WB_STREAM_HOLE_SIZE];

    zeros->from = zeros->to;
    if (hole.length == 0 || bytes->hole == 0)
        return 0;
    wb_stream_encode_hole(&hole, data);
    return wb_frames_write(&sending->frames, bytes->hole, data, sizeof(data), NULL, 0);
}

static int send_piece(struct wb_sending *sending, const struct wb_sent_bytes *bytes, uint64_t from, size_t length)
{
    struct wb_stream_bytes piece = {.object = bytes->object, .offset = from};
    uint8_t head[WB_STREAM_BYTES_SIZE];

    wb_stream_encode_bytes(&piece, head);
    return wb_frames_write(&sending->frames, bytes->type, head, sizeof(head), sending->data, length);
}

int wb_sending_bytes(struct wb_sending *sending, const struct wb_sent_bytes *bytes, uint64_t from, uint64_t to)
{
    struct zeros zeros = {from, from};
    uint64_t data = from;
    size_t length;
    int r = 0;

    for (; r == 0 && from < to; from += length) {
        if (data <= from)
            r = bytes->next_data(bytes, from, &data);
        if (r == -ENXIO) {
            data = to;
            r = 0;
        }
        if (r < 0)
            return r;
        data = MIN(data, to);
        /* Whole pieces of a hole at once. */
        from += data > from ? (data - from) / WB_FRAME_BYTES_MAX * WB_FRAME_BYTES_MAX : 0;
        zeros.to = from;
        length = (size_t)MIN(WB_FRAME_BYTES_MAX, to - from);
        if (length > 0 && data < to)
            r = bytes->read(bytes, sending->data, length, from);
        if (r < 0)
            return r;
        if (data >= to || wb_is_zero(sending->data, length)) {
            zeros.to = from + length;
            continue;
        }
        r = send_zeros(sending, bytes, &zeros);
        if (r == 0)
            r = send_piece(sending, bytes, from, length);
        zeros = (struct zeros){from + length, from + length};
    }
    return r < 0 ? r : send_zeros(sending, bytes, &zeros);
}
