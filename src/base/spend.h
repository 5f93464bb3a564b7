/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

/*
 * Whose room a write takes. ext4 and f2fs keep a part of the blocks for root, and go by the user (fsuid) of the thread
 * that writes: a daemon of root that writes for others would fill it for them. So what such a thread writes in their
 * place, to the tree and to the history, is written as that user.
 */

#include <stdbool.h>
#include <sys/types.h>

/* From now on this thread writes for that user; 0: for root, or as whoever runs the process. */
void wb_spend_for(uid_t uid);

/*
 * Around system calls on descriptors that are open for writing: nothing in between may need a permission. Whether the
 * user was changed, for wb_spend_end. Not changed where the thread acts as a user already. `group`: of the file, which
 * the thread gets too, so that a set-group-ID bit that nobody has to take stays; 0 where there is none.
 */
bool wb_spend_begin(gid_t group);
void wb_spend_end(bool changed);
