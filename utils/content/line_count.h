/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

/* How many lines one text has that another one has not, as in "12 insertions, 3 deletions". */

#include <stdbool.h>
#include <stddef.h>

/*
 * The fewest lines that must be removed from `old` and added to make `new` of it. False: one of them is no text (it has
 * a NUL), or they differ by too much to be compared in reasonable time.
 */
bool wb_lines_compare(const char *old, size_t old_size, const char *new, size_t new_size, unsigned *ret_added,
                      unsigned *ret_removed);
