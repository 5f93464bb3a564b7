/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

/* A control request (<wayback/control.h>) while it is served. */

#include "daemon/core/session.h"

struct wb_control;
struct wb_caller;

/* One request on its way. `start`: the directory it was made on. */
struct wb_request {
    struct wb_session *session;
    fuse_req_t req;
    struct wb_node *start;
    const struct wb_control *in;
    struct wb_caller *caller; /* for wb_control_is_at_home */
};
