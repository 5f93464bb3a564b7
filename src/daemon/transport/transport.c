/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * The functions by which libfuse reads requests and writes replies. They watch the first request (INIT) and its reply,
 * in which the kernel and the daemon agree on io_uring, and pass each reply to where its request came from.
 */
#include "daemon/transport/transport.h"

#include "daemon/system/report.h"
#include "daemon/transport/ring.h"
#include "daemon/transport/wire.h"
#include <errno.h>
#include <fcntl.h>
#include <glib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#define CLONE_DEVICE _IOR(229, 0, uint32_t) /* FUSE_DEV_IOC_CLONE */

struct wb_transport {
    unsigned threads;
    /* Of INIT; no other request is read before its reply is written. */
    bool begun, offered;
    uint64_t init;
    struct wb_ring *_Atomic ring; /* NULL: the classic transport */
};

int wb_transport_check(struct wb_error *why)
{
    return wb_ring_check(why);
}

/* ---- what libfuse calls -------------------------------------------------------------------------- */

static void look_at_init(struct wb_transport *transport, const void *data, size_t size)
{
    const struct wb_wire_in *in = data;
    const struct wb_wire_init_in *init = (const void *)(in + 1);

    if (size < sizeof(*in) + sizeof(*init) || in->opcode != WB_WIRE_INIT)
        return;
    transport->init = in->unique;
    transport->offered = init->flags & WB_WIRE_INIT_EXT && init->flags2 & WB_WIRE_OVER_IO_URING;
}

static ssize_t read_request(int fd, void *buffer, size_t size, void *data)
{
    struct wb_session *session = data;
    ssize_t n = read(fd, buffer, size);

    if (!session->transport->begun && n > 0)
        look_at_init(session->transport, buffer, (size_t)n);
    return n;
}

/* The reply to INIT. */
static ssize_t agree(struct wb_session *session, int fd, struct iovec *parts, int count)
{
    struct wb_transport *transport = session->transport;
    const struct wb_wire_out *out = parts[0].iov_base;
    struct wb_wire_init_out *init = count == 2 ? parts[1].iov_base : NULL;
    struct wb_ring *ring = NULL;
    ssize_t n;
    int r;

    transport->begun = true;
    if (!transport->offered || out->error < 0 || !init || parts[1].iov_len < sizeof(*init))
        return writev(fd, parts, count);
    r = wb_ring_new(&ring, session->fuse,
                    MAX(WB_WIRE_PAYLOAD_MIN, MAX(init->max_write, (size_t)init->max_pages * (size_t)getpagesize())),
                    transport->threads);
    if (r == 0)
        init->flags2 |= WB_WIRE_OVER_IO_URING;
    else
        wb_log_msg("%s: -o io_uring has no effect (%s)", session->mountpoint, g_strerror(-r));
    /* Requests may come before writev returns. */
    atomic_store(&transport->ring, ring);
    n = writev(fd, parts, count);
    r = errno;
    if (ring && n >= 0) {
        wb_ring_start(ring);
    } else if (ring) {
        atomic_store(&transport->ring, NULL);
        wb_ring_free(ring);
    }
    errno = r;
    return n;
}

static ssize_t write_reply(int fd, struct iovec *parts, int count, void *data)
{
    struct wb_session *session = data;
    struct wb_transport *transport = session->transport;
    const struct wb_wire_out *out = parts[0].iov_base;
    struct wb_ring *ring = atomic_load_explicit(&transport->ring, memory_order_acquire);

    if (ring && out->unique != 0 && wb_ring_reply(ring, parts, count))
        return out->len;
    if (!transport->begun && out->unique == transport->init && out->unique != 0)
        return agree(session, fd, parts, count);
    return writev(fd, parts, count);
}

/* As libfuse does it itself. */
static int clone_device(int master)
{
    int fd = open("/dev/fuse", O_RDWR | O_CLOEXEC);
    uint32_t number = (uint32_t)master;
    int error;

    if (fd < 0 || ioctl(fd, CLONE_DEVICE, &number) == 0)
        return fd;
    error = errno;
    close(fd);
    errno = error;
    return -1;
}

/* ---- from the mount to its end ------------------------------------------------------------------- */

int wb_transport_begin(struct wb_session *session, unsigned threads, struct wb_error *why)
{
    /* Nothing asks for splice(2): content is compared and recorded, so it must be in memory. */
    static const struct fuse_custom_io io = {.writev = write_reply, .read = read_request, .clone_fd = clone_device};
    int r;

    if (!session->options->io_uring)
        return 0;
    session->transport = g_new0(struct wb_transport, 1);
    session->transport->threads = threads;
    wb_report_hold_fuse(true);
    r = fuse_session_custom_io(session->fuse, &io, sizeof(io), fuse_session_fd(session->fuse));
    wb_report_hold_fuse(false);
    if (r == 0)
        return 0;
    g_clear_pointer(&session->transport, g_free);
    return wb_error_set(why, r, "%s: cannot use io_uring (this libfuse was built without custom I/O, "
                        "-Denable-custom-io=true); leave out -o io_uring", session->mountpoint);
}

void wb_transport_stop(struct wb_session *session)
{
    struct wb_ring *ring = session->transport ? atomic_load(&session->transport->ring) : NULL;

    if (ring)
        wb_ring_stop(ring);
}

void wb_transport_close(struct wb_session *session)
{
    struct wb_ring *ring = session->transport ? atomic_load(&session->transport->ring) : NULL;

    if (ring)
        wb_ring_close(ring);
}

void wb_transport_end(struct wb_session *session)
{
    if (!session->transport)
        return;
    wb_transport_stop(session);
    wb_ring_free(atomic_load(&session->transport->ring));
    g_clear_pointer(&session->transport, g_free);
}

bool wb_transport_is_io_uring(const struct wb_session *session)
{
    return session->transport && atomic_load(&session->transport->ring);
}
