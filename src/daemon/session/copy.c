/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "daemon/session/copy.h"

#include "base/io.h"
#include "wayback/copy.h"
#include <errno.h>
#include <glib.h>

#define TRIES 200
#define PAUSE_US 50000

int wb_copy_await(struct wb_session *session, struct wb_error *why)
{
    struct wb_copy_result result;
    char path[32];
    int r = -EBUSY;

    /* What the mount may cover is reached all the same. */
    wb_fd_path(session->src_fd, path);
    for (int i = 0; i < TRIES && r == -EBUSY; i++) {
        r = wb_copy_status(path, &result, why);
        if (r == -EBUSY)
            g_usleep(PAUSE_US);
    }
    if (r == -EBUSY)
        return wb_error_set(why, r, "%s is a copy that vreceive is updating; mount it when that is complete",
                            session->source);
    if (r == 0 && result.until == 0)
        return wb_error_set(why, -EBUSY, "%s is a copy that has not received a whole stream yet; repeat vreceive",
                            session->source);
    return r;
}
