/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

/*
 * Copies a file or a whole tree of the past, as it was: content with its holes, modes, owners (as
 * far as one may give them away), times, extended attributes, flags (chattr), links of both kinds, devices.
 */

#include <glib.h>
#include <stdbool.h>
#include <stdint.h>

struct extract {
    bool dry;     /* only count */
    bool verbose; /* print each name */
    uint64_t files, directories, bytes, failed;
    /* The rest is extract.c's own. */
    int top_fd;        /* the copy itself (O_PATH); -1: nothing was made */
    GHashTable *links; /* inode of the past -> its copy */
    GArray *locked;    /* of extract_lock                       */
};

/*
 * from_dir/from_name becomes to_dir/to_name, which must not exist. `shown` names it in error
 * lines. Entries that cannot be copied are reported, counted in `failed`, and left out; a negative errno
 * is returned only if it is pointless to continue: nothing at all was copied, no space, interrupted.
 */
int extract_run(struct extract *extract, int from_dir, const char *from_name, int to_dir, const char *to_name,
                const char *shown);

/*
 * Makes immutable, or append-only, what was: nothing could be moved or removed after it, so the copy has its name by
 * then. Failures are reported.
 */
void extract_lock(const struct extract *extract);

void extract_end(struct extract *extract);
