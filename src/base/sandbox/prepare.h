/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

#include <stdbool.h>

/*
 * Reads the files of the system that messages need later: the texts of errors, the converters between the character
 * set of the locale and UTF-8, and the time zone. Call it before a confinement that hides these files.
 */
void wb_sandbox_prepare(void);

/*
 * Whether the result of a barrier is that this kernel, or this container, does not have it or does not permit it: the
 * others remain.
 */
bool wb_sandbox_is_missing(int r);
