/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

/* The JSON of venable and vdisable: one document for the directory, with the steps that were (or would be) done. */

#include <stdbool.h>

void wb_steps_begin(const char *directory, bool dry_run);

/* Of "set", the detail is a setting; of other steps, a path. */
void wb_steps_add(const char *step, const char *detail);

/* With one more member that is known at the end. */
void wb_steps_end(const char *key, bool value);
