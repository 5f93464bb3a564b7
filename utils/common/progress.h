/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

/* How far it has come: one line on stderr, on a terminal only, and not in the first second. */

#include <stdint.h>

void wb_progress_begin(void);
void wb_progress_add(uint64_t files, uint64_t bytes);

/* Clears the line; before other output, and at the end. */
void wb_progress_clear(void);
