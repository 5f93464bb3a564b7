/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

/* The line of fstab(5) that mounts a directory over itself; all other lines stay as they are. */

#include <stdbool.h>

bool wb_fstab_has(const char *path, const char *directory);

/* The mount options of the line, without those that are for mount(8); g_free. NULL: there is no line. */
char *wb_fstab_options(const char *path, const char *directory);

/* The whole line; g_free. NULL: there is none. */
char *wb_fstab_line(const char *path, const char *directory);

/* What another line of the type wayback mounts at the directory; g_free. NULL: there is none. */
char *wb_fstab_other(const char *path, const char *directory);

/* `text`, which is that of the file at `path`, with a line for these options; one that has them stays. g_free. */
char *wb_fstab_with(const char *path, const char *text, const char *directory, const char *options);
/* `text` with `line` in place of ours; NULL: without ours. g_free. */
char *wb_fstab_edit(const char *text, const char *directory, const char *line);
