/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

/* Whether a copy was changed by itself: what comes from where it was copied from knows nothing of that. */

#include "wayback/error.h"
#include <stdint.h>

/* Since `until`, the last moment that was received; 0: nothing was. 0; -EXDEV with a line in `why`: it was; -errno. */
int wb_copy_check_unchanged(int dir_fd, int64_t until, struct wb_problem *why);
