/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

/* Prints a state to standard output: the content of a file, the list of a directory, the target of a symbolic link. */

#include "common/mount.h"

/* from_dir/from_name as it was at `when` (0: as it is). 0 or an exit status after an error line. */
int show_state(const struct wb_place *place, int64_t when, int from_dir, const char *from_name);

/* The content of a file only. `dry`: only whether it can be read. */
int show_content(const struct wb_place *place, int from_dir, const char *from_name, bool dry);
