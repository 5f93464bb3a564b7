/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

/*
 * A root directory that has some directories and /proc alone, for a process of root that reads the bytes of others:
 * Landlock does not restrict modes, owners and attributes, and here other files have no path at all.
 */

#include <stdbool.h>
#include <stddef.h>

struct wb_enclosed {
    int fd;           /* the directory, with what is mounted below it; O_PATH suffices */
    const char *path; /* absolute: its path from then on */
};

/*
 * Not every container permits it. `read_only`: nothing in these places can be changed. Returns 1; 0 if it is impossible
 * here or the caller is not root, and nothing has changed; or a negative errno: the process can no longer use paths.
 */
int wb_enclose(const struct wb_enclosed *places, size_t count, bool read_only);

/* Closes all descriptors of directories that a caller left open, except `kept`: each leads to all that is above it. */
void wb_enclose_close_directories(const int *kept, size_t count);
