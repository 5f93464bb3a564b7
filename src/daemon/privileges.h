/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

#include "daemon/options.h"

/*
 * A daemon of root gives up what it does not need once it has mounted: for good, in the calling thread and all that
 * are made after it. A daemon of an ordinary user has nothing to give up, and unmounts by fusermount3, which is
 * set-user-ID: that works for nobody who has filtered their system calls.
 */
void wb_privileges_drop(const struct wb_options *options);
