/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Built without liburing: the classic transport only. */
#include "daemon/transport/ring.h"

#include <errno.h>

int wb_ring_check(struct wb_error *why)
{
    return wb_error_set(why, -EOPNOTSUPP, "this wayback was built without liburing");
}

int wb_ring_new(struct wb_ring **ret, struct fuse_session *fuse, size_t payload, unsigned threads)
{
    (void)fuse;
    (void)payload;
    (void)threads;
    *ret = NULL;
    return -EOPNOTSUPP;
}

void wb_ring_start(struct wb_ring *ring)
{
    (void)ring;
}

bool wb_ring_reply(struct wb_ring *ring, const struct iovec *parts, int count)
{
    (void)ring;
    (void)parts;
    (void)count;
    return false;
}

void wb_ring_stop(struct wb_ring *ring)
{
    (void)ring;
}

void wb_ring_close(struct wb_ring *ring)
{
    (void)ring;
}

struct wb_ring *wb_ring_free(struct wb_ring *ring)
{
    (void)ring;
    return NULL;
}
