/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

/* Paths as text: of things that may be gone, and of the past. All results are the caller's to
 * g_free. */

#include <glib.h>
#include <stdbool.h>

/*
 * `path` as the kernel would walk it, made absolute: links in the part that exists are followed
 * (not in the last component, unless a slash follows it), the rest is resolved as text. NULL
 * with errno set where the current directory is gone; EXDEV: a link in /proc leads to a place that has
 * no path for the caller, or another one than its text.
 */
char *wb_path_absolute(const char *path);

/*
 * The same for a path below which something is to be changed: symbolic links in it are followed only if they belong to
 * root or to the caller (wb_open_named_dir). NULL with ELOOP: there is another one.
 */
char *wb_path_to_change(const char *path);

/* realpath(3) of a directory to change: NULL with errno, also ELOOP and EXDEV as above. free(3). */
char *wb_path_real(const char *path);

/* Why one of these returned NULL, by its errno. */
const char *wb_path_error_text(int error);

/* Whether `path` is `top` or below it; *rest is then what follows, without a slash. */
bool wb_path_below(const char *path, const char *top, const char **rest);

/* a/b; where either is "" just the other. */
char *wb_path_join(const char *a, const char *b);

/* Everything before the last slash ("" if none) and, in *name, what follows. */
char *wb_path_parent(const char *path, const char **name);
