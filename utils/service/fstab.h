/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

/* The line of fstab(5) that mounts a directory over itself; all other lines stay as they are. */

#include <stdbool.h>

bool wb_fstab_has(const char *path, const char *directory);

/* The mount options of the line, without those that are for mount(8); g_free. NULL: there is no line. */
char *wb_fstab_options(const char *path, const char *directory);

/* The text with such a line, or without it; g_free. */
char *wb_fstab_with(const char *text, const char *directory, const char *options);
char *wb_fstab_without(const char *text, const char *directory);
