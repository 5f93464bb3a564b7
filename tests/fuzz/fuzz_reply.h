/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

/* The parts of the target `reply`: the tools have structures of the same names. */

#include "fuzz.h"
#include <stdbool.h>

/* Whether a name is a plain one that leads nowhere else. */
void fuzz_expect_name(const char *name);

/* vstat, with all it can show of a version. */
void fuzz_ask_versions(int fd, bool directory);

/* vsnap diff. */
struct wb_mount;
void fuzz_compare(const struct wb_mount *mount);
