/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

/*
 * A daemon of root gives up what it does not need once it has mounted: for good, in the calling thread and all that
 * are made after it. A daemon of an ordinary user has nothing to give up.
 */
void wb_privileges_drop(void);
