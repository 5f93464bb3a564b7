/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "client/usage.h"

#include "client/watch.h"
#include <errno.h>
#include <glib.h>
#include <string.h>

/* Requests in a row without progress, each of a tenth of a second. */
#define STILL_MAX 36000
/* Something was erased meanwhile, or many callers asked at once. */
#define TRIES 5

static int measure_once(int dir_fd, const char *path, const struct wb_control_usage_ask *wanted,
                        const struct wb_usage_listener *listener, struct wb_control_usage *ret, unsigned *flags)
{
    g_autofree struct wb_control *request = g_new(struct wb_control, 1);
    struct wb_control_usage_ask *ask = (struct wb_control_usage_ask *)(void *)request->data;
    uint64_t cursor = 0;
    unsigned still = 0;
    int r;

    do {
        uint64_t looked = ret->looked;
        uint32_t permille = ret->permille;

        if (wb_watch_stopped())
            return -EINTR;
        r = wb_request_prepare(request, WB_CONTROL_USAGE, path);
        if (r < 0)
            return r;
        *ask = *wanted;
        request->cursor = cursor;
        r = wb_request_call(dir_fd, request);
        if (r < 0)
            return r;
        cursor = request->cursor;
        *flags |= request->flags;
        memcpy(ret, request->data, sizeof(*ret));
        still = request->flags & WB_CONTROL_USAGE_BUILDING && ret->looked == looked && ret->permille == permille
                    ? still + 1
                    : 0;
        if (listener)
            r = listener->reply(listener->data, request);
        if (still > STILL_MAX)
            r = -ETIMEDOUT;
    } while (r == 0 && request->flags & WB_CONTROL_USAGE_MORE);
    return r;
}

int wb_request_usage(int dir_fd, const char *path, unsigned depth, unsigned most,
                     const struct wb_usage_listener *listener, struct wb_control_usage *ret, unsigned *flags)
{
    const struct wb_control_usage_ask ask = {.depth = depth, .most = most};
    int r = -ESTALE;

    for (unsigned i = 0; r == -ESTALE && i < TRIES; i++) {
        *ret = (struct wb_control_usage){0};
        *flags = 0;
        if (listener)
            listener->begin(listener->data);
        r = measure_once(dir_fd, path, &ask, listener, ret, flags);
    }
    return r;
}
