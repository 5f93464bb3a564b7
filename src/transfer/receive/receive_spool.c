/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* The stream as it comes: whether it is one for this copy, and its frames into the spool. */
#include "transfer/receive/receiving.h"

#include "base/cleanup.h"
#include "base/io.h"
#include "store/parts.h"
#include "wayback/when.h"
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

/* The root has been that of the copy from the first stream on. */
static bool has_root(const struct wb_receiving *receiving, struct wb_object root)
{
    _cleanup_close_ int fd = wb_open_own(receiving->dir_fd, WB_HEADER_NAME, O_RDONLY, 0);
    uint8_t data[WB_HEADER_SIZE];
    struct wb_header header;
    size_t length;

    return fd >= 0 && wb_pread_full(fd, data, sizeof(data), 0, &length) == 0 &&
           wb_header_decode(data, length, &header) == 0 && wb_object_equal(header.root, root);
}

static int check_hello(struct wb_receiving *receiving, const struct wb_stream_hello *hello, struct wb_problem *why)
{
    char here[WB_WHEN_TEXT_MAX], there[WB_WHEN_TEXT_MAX];
    const struct wb_received *received = &receiving->received;

    if (hello->format > WB_FORMAT_VERSION)
        return wb_problem_set(why, -EPROTONOSUPPORT, "the stream was made by a newer program; receive it with that");
    if (received->until > 0 && memcmp(received->uuid, hello->uuid, sizeof(hello->uuid)) != 0)
        return wb_problem_set(why, -EXDEV, "the stream is of another tree than this copy; receive it into another "
                              "directory");
    if (received->until > 0 && !has_root(receiving, hello->root))
        return wb_problem_set(why, -EXDEV, "the root of the stream is not that of this copy; receive it into another "
                              "directory");
    if (hello->since == received->until)
        return 0;
    if (received->until == 0)
        return wb_problem_set(why, -EXDEV, "the stream begins at %s, but there is nothing here yet; send it from the "
                              "beginning (vsend without --since)", wb_when_print_epoch(hello->since, there));
    if (hello->since == 0)
        return wb_problem_set(why, -EEXIST, "the stream begins with the history, but there is a copy here; send only "
                              "new changes (vsend --since %s), or receive it into an empty directory",
                              wb_when_print_epoch(received->until, here));
    return wb_problem_set(why, -EXDEV, "the stream begins at %s, but this copy ends at %s; send it with --since %s",
                          wb_when_print_epoch(hello->since, there), wb_when_print_epoch(received->until, here), here);
}

static int write_full(int fd, const void *data, size_t length)
{
    for (size_t done = 0; done < length;) {
        ssize_t n = write(fd, (const char *)data + done, length - done);

        if (n < 0 && errno != EINTR)
            return -errno;
        done += n > 0 ? (size_t)n : 0;
    }
    return 0;
}

static int begin_spool(struct wb_receiving *receiving, const struct wb_frames *frames, struct wb_problem *why)
{
    struct wb_applying *applying = &receiving->applying;
    int r;

    if (frames->resumed) {
        applying->spool_fd = r = wb_open_own(receiving->stage_fd, WB_SPOOL_NAME, O_RDWR, 0);
        if (r >= 0 && (ftruncate(r, (off_t)receiving->partial.length) < 0 || lseek(r, 0, SEEK_END) < 0))
            r = -errno;
    } else {
        applying->spool_fd = r = wb_create_own(receiving->stage_fd, WB_SPOOL_NAME, O_RDWR);
    }
    return r < 0 ? wb_problem_set(why, r, "the stream cannot be stored: %s", g_strerror(-r)) : 0;
}

static int fail_frame(const struct wb_frames *frames, int r, struct wb_problem *why)
{
    if (r == -ENODATA || r == -EBADMSG)
        return wb_problem_set(why, -EBADMSG, "the stream was cut off or altered after %" G_GUINT64_FORMAT
                              " bytes; the copy was not changed%s", frames->bytes, frames->sequence > 1
                              ? ", and the received part is kept; send the rest (vsend --since `vreceive --status`)"
                              : "; send it again");
    if (r == -EPROTONOSUPPORT)
        return wb_problem_set(why, r, "the stream was made by a newer program; receive it with that");
    if (r == -ECANCELED)
        return wb_problem_set(why, r, "stopped; the copy was not changed");
    return wb_problem_set(why, r, "the stream cannot be read: %s", g_strerror(-r));
}

/* What was read before is judged once more: by now it may be another copy. */
int wb_receiving_read_first(struct wb_receiving *receiving, struct wb_frames *frames, struct wb_problem *why)
{
    struct wb_stream_hello *hello = &receiving->applying.hello;
    struct wb_stream_body *first = &receiving->first;
    int r = 0;

    if (!first->type)
        r = wb_frames_read(frames, first, receiving->first_head, &receiving->first_length);
    if (r < 0)
        return r == -ENODATA ? 1 : fail_frame(frames, r, why);
    if (frames->resumed == (first->type == WB_FRAME_HELLO))
        return wb_problem_set(why, -EBADMSG, "this is not a stream of vsend");
    *hello = frames->resumed ? receiving->partial.hello : first->hello;
    return check_hello(receiving, hello, why);
}

static int write_frame(const struct wb_receiving *receiving, const struct wb_frames *frames, const uint8_t *head,
                       size_t length, struct wb_problem *why)
{
    int r = write_full(receiving->applying.spool_fd, head, WB_FRAME_HEAD);

    if (r == 0)
        r = write_full(receiving->applying.spool_fd, frames->buffer, length);
    return r < 0 ? wb_problem_set(why, r, "the stream cannot be stored: %s", g_strerror(-r)) : 0;
}

int wb_receiving_spool(struct wb_receiving *receiving, struct wb_frames *frames, struct wb_problem *why)
{
    uint8_t head[WB_FRAME_HEAD];
    struct wb_stream_body body;
    size_t length;
    int r;

    frames->known = receiving->partial.frames;
    frames->known_check = receiving->partial.check;
    r = wb_receiving_read_first(receiving, frames, why);
    if (r == 0)
        r = begin_spool(receiving, frames, why);
    if (r == 0)
        r = write_frame(receiving, frames, receiving->first_head, receiving->first_length, why);
    body = receiving->first;
    while (r == 0 && body.type != WB_FRAME_END) {
        r = wb_frames_read(frames, &body, head, &length);
        if (r < 0)
            return fail_frame(frames, r, why);
        if (body.type == WB_FRAME_HELLO)
            return wb_problem_set(why, -EBADMSG, "this is not a stream of vsend");
        r = write_frame(receiving, frames, head, length, why);
    }
    if (r == 0 && fsync(receiving->applying.spool_fd) < 0)
        r = wb_problem_set(why, -errno, "the stream cannot be stored: %s", g_strerror(errno));
    return r;
}
