/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

#include "wayback/held.h"

/* wb_open_beneath where the kernel has no openat2(2): one component after the other. ".." is refused (-EXDEV). */
int wb_open_beneath_by_steps(int dir_fd, const char *path, int flags);
