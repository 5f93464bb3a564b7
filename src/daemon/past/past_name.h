/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

/* Names that mean a moment: BASE@TIME. */

#include "daemon/core/session.h"
#include "format/format.h"
#include "wayback/when.h"

/* How a name reads as a past state: BASE@TIME, or all of it as TIME in a directory of snapshots. */
struct wb_past_moment {
    size_t base; /* bytes of BASE */
    struct wb_time time;
    struct wb_object scope; /* of a snapshot */
};

/* `whole`: all of the name is TIME; `nth`: of several snapshots of that name. 0, WB_NOT_TIME or -errno. */
int wb_past_moment_of(const struct wb_session *session, bool whole, const char *name, unsigned nth,
                      struct wb_past_moment *ret);
