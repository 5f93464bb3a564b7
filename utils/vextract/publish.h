/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

/*
 * Where an extract goes. It grows under a temporary name beside its final one and is renamed when
 * it is whole: a reader of the final name sees all of it.
 */

#include <stdbool.h>

struct target {
    const char *out; /* as the user wrote it */
    int dir_fd;
    char *name; /* final name in dir_fd */
    char temporary[32];
    bool force;
};

/* Opens the directory of `out` and checks that the name may be used; 0 or an exit status after an
 * error line. */
int target_open(struct target *target, const char *out, bool force);

/* What `held` holds, at the temporary name, gets the final name. 0 or an exit status after an error line. */
int target_publish(struct target *target, int held);

/* Removes what `held` holds (-1: nothing was made), with all below it, unless it was published. */
void target_discard(struct target *target, int held);

void target_close(struct target *target);
