/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

/*
 * Charges writes to the user for whom they are made. ext4 and f2fs reserve part of the blocks for root, and decide by
 * the user (fsuid) of the thread that writes: a daemon of root that writes for other users would use up that reserve
 * for them. So a thread that writes for a user, to the tree or to the history, does so with the fsuid of that user.
 */

#include <stdbool.h>
#include <sys/types.h>

/* From now on this thread writes for that user; 0: for root, or for the user who runs the process. */
void wb_spend_for(uid_t uid);

/*
 * Encloses system calls on descriptors that are open for writing: no call in between may need a permission. Returns
 * whether the user was changed, for wb_spend_end; it is not changed if the thread acts as a user already. `group`: the
 * group of the file, which the thread gets as well, so that the kernel keeps a set-group-ID bit; 0 if there is none.
 */
bool wb_spend_begin(gid_t group);
void wb_spend_end(bool changed);
