/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

/*
 * FUSE over io_uring. The kernel has a queue for each CPU and sends each request to an entry of the queue of its
 * caller's CPU: two buffers of ours, which a command has registered. The reply is written to the same buffers, and the
 * next command commits it and makes the entry available again.
 *
 * A server thread has a ring of its own with at most one entry. It waits for a request there, serves it, and commits
 * the reply with the same system call by which it waits for the next request, so that a request costs one system call.
 * No thread uses the ring of another one.
 *
 * An entry belongs to no ring: it is available in the ring whose command committed it. If the operation replies later,
 * from another thread, the server leaves the entry behind and is free. Once the reply is there, a server without an
 * entry commits it, or else the dispatcher. So the number of requests that wait for their replies is unlimited, as with
 * /dev/fuse, and that of threads is not.
 *
 * The dispatcher is a thread that serves no request. It registers entries, always more than are in use, and commits the
 * replies for which there is no server. A request that it receives, because all servers of the queue are busy, goes to
 * a server without an entry, or to a new one, which has that entry from then on. The kernel prefers the entry that
 * became available last, so those of the servers come first.
 */

#include "wayback/error.h"
#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>
#include <sys/uio.h>

struct fuse_session;
struct wb_ring;

/* Whether rings can be made and the kernel has the same for FUSE: 0, or -errno with the reason in `why`. */
int wb_ring_check(struct wb_error *why);

/*
 * Rings for the session; the kernel does not know them yet. `payload`: bytes of the largest request or reply beside its
 * headers. `threads`: busy servers of one queue. 0 or -errno.
 */
int wb_ring_new(struct wb_ring **ret, struct fuse_session *fuse, size_t payload, unsigned threads);

/* Registers the first entries, after the reply to INIT has said that there are some: the kernel sends nothing else
 * until each queue has one. */
void wb_ring_start(struct wb_ring *ring);

/* A reply in the form of writev(2). False: it belongs to no request of these rings. */
bool wb_ring_reply(struct wb_ring *ring, const struct iovec *parts, int count);

/* Ends all threads; each completes the request that it serves. No request is served after that. */
void wb_ring_stop(struct wb_ring *ring);

/* After wb_ring_stop: commits the replies that other threads have written since, and gives up the connection. Replies
 * that are written later are dropped. */
void wb_ring_close(struct wb_ring *ring);

/* Returns NULL. */
struct wb_ring *wb_ring_free(struct wb_ring *ring);
