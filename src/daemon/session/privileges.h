/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

#include "daemon/core/session.h"

/*
 * A daemon of root gives up what it does not need once it has mounted: for good, in the calling thread and all that
 * are made after it. A daemon of an ordinary user has nothing to give up, and unmounts by fusermount3, which is
 * set-user-ID: that works for nobody who has filtered their system calls. 0; or -errno with a line in `why`, where
 * Landlock was asked for and there is none.
 */
int wb_privileges_drop(const struct wb_session *session, struct wb_error *why);

/* The same of the mount helper (helper.h). 0 or -errno: capabilities stay. */
int wb_privileges_drop_of_helper(void);
