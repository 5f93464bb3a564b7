/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

/*
 * Long work that is given up when nobody waits for its result any more. The beginner of the work states how to find
 * that out; the loops below ask, however deep they are, and end with -EINTR.
 */

#include <stdbool.h>

/* From now on, this thread's work is given up once `is_abandoned` says so; NULL: it never is. */
void wb_interrupt_watch(bool (*is_abandoned)(void *data), void *data);

/* Whether to give up. Cheap enough for each step of a loop: only one call of many asks. */
bool wb_interrupted(void);
