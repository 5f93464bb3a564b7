/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

/* How far it has come: one line on stderr, on a terminal only, and not in the first second. */

#include <stdbool.h>
#include <stdint.h>

void wb_progress_begin(void);
void wb_progress_add(uint64_t files, uint64_t bytes);

/* The progress function of a struct wb_copy_listener: bytes of the stream so far. Returns false if the user stopped. */
bool wb_progress_stream(uint64_t bytes, uint64_t changes, void *data);

/* Clears the line; before other output, and at the end. */
void wb_progress_clear(void);
