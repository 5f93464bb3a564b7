/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "transfer/wire/partial.h"

#include "base/cleanup.h"
#include "base/io.h"
#include "transfer/wire/frames.h"
#include <fcntl.h>
#include <string.h>

static bool goes_on(const struct wb_received *received, const struct wb_stream_hello *hello)
{
    return hello->since == received->until &&
           (received->until == 0 || memcmp(hello->uuid, received->uuid, sizeof(hello->uuid)) == 0);
}

void wb_partial_find(int stage_fd, const struct wb_received *received, struct wb_partial *ret)
{
    _cleanup_close_ int fd = wb_open_own(stage_fd, WB_SPOOL_NAME, O_RDONLY, 0);
    struct wb_stream_body body;
    struct wb_frames frames;

    *ret = (struct wb_partial){0};
    if (fd < 0 || wb_frames_init(&frames, fd, NULL) < 0)
        return;
    while (wb_frames_read(&frames, &body, NULL, NULL) == 0 && body.type != WB_FRAME_END &&
           (body.type == WB_FRAME_HELLO) == (frames.sequence == 1)) {
        if (frames.sequence == 1)
            ret->hello = body.hello;
        ret->frames = frames.sequence;
        ret->check = frames.previous;
        ret->length = frames.bytes;
    }
    if (ret->frames > 0 && !goes_on(received, &ret->hello))
        ret->frames = 0;
    wb_frames_deinit(&frames);
}
