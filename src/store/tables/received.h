/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

/*
 * A store that is a copy, and follows another (docs/format.md, The stream): how far it has come. While it is brought
 * up to date nobody else may look at it, since its tree is of no moment then.
 */

#include "format/stream.h"
#include "wayback/error.h"

/* 0; -ENOENT: it is no copy; -EBADMSG or -errno. */
int wb_received_read(int dir_fd, struct wb_received *ret);
int wb_received_write(int dir_fd, const struct wb_received *received);

/* Whether it may be opened: 0; -EINPROGRESS, with a line in `why`: not yet. */
int wb_received_check(int dir_fd, const char *home, struct wb_error *why);

/* When something was last erased for good. Where it cannot be read, it may be just now: INT64_MAX. */
struct wb_erased wb_erased_read(int dir_fd);
/* Before anything is: by name, or single versions that are thinned out. 0 or -errno. */
int wb_erased_mark(int dir_fd, int64_t when);
int wb_erased_mark_thinned(int dir_fd, int64_t when);
/* Removes leftovers of a crash, which nothing may replace for long. For the process that writes the store. */
void wb_erased_sweep(int dir_fd);
