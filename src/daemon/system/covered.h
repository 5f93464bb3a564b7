/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

/*
 * Replaces a dead mount, on which every access fails, by a new one: no path leads to the directory below meanwhile.
 *
 * Mounted in place, that directory is SRC, and a write to it would not be recorded. Needs root: fusermount3, by which
 * other users mount, refuses a mount point that is a dead mount.
 */

#include "wayback/error.h"
#include <stdbool.h>
#include <stdint.h>

/* Opens the directory below the dead mount at `path`. Returns a descriptor or -errno. */
int wb_covered_open(const char *path);

/* A mount at `from` takes the place of the dead one at `path`. It need not be served yet. */
struct wb_covered {
    uint64_t mount_id; /* of the new mount */
    bool on_top;       /* the kernel is older than 6.5: the dead mount is still there, below the new one */
};

/* 0, or -errno with a line in `why`, and nothing was changed. `from` stays mounted. */
int wb_covered_replace(struct wb_covered *ret, const char *from, const char *path, struct wb_error *why);

/* Detaches the new mount from `path`, unless that was done already, and the dead mounts that it covered. */
void wb_covered_detach(const struct wb_covered *covered, const char *path);
