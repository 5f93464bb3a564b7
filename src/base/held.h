/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

#include "wayback/held.h"

/* wb_open_beneath for kernels without openat2(2): opens one component at a time. Refuses ".." (-EXDEV). */
int wb_open_beneath_by_steps(int dir_fd, const char *path, int flags);

/* wb_open_in_mount the same way. It recognizes a mount by its device: a bind mount of the same file system passes. */
int wb_open_in_mount_by_steps(int dir_fd, const char *path, int flags);
