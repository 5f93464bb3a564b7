/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

/* Text for the pane that shows a version: lines that can be printed, from the bytes of a file or a tool. */

#include <glib.h>
#include <stdbool.h>
#include <stddef.h>
#include "client/past_path.h"

/* More than this much of a file is not shown. */
#define CONTENT_MAX (4 << 20)

/* Adds the lines of `bytes` to `lines` (g_free): tabs become blanks, all other such characters are quoted. */
void content_add_lines(GPtrArray *lines, const char *bytes, size_t length);

/* The same as a dump in hexadecimal digits. */
void content_add_dump(GPtrArray *lines, const char *bytes, size_t length);

/*
 * What the file, link or other object of `moment` contained. `stopped` is asked between pieces. 0, -EINTR or another
 * -errno. *ret_whole: all of it is there.
 */
int content_read(const struct wb_mount *mount, const struct wb_moment *moment, bool (*stopped)(void), GPtrArray *lines,
                 bool *ret_whole);
