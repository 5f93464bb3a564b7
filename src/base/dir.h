/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

/*
 * Directories as streams of names.
 */

#include <dirent.h>
#include <stdbool.h>

/*
 * opendir(3) of dir_fd/name; "." opens a separate stream of dir_fd itself, which may be O_PATH. Does not follow
 * symbolic links. NULL and errno on failure.
 */
DIR *wb_opendir_at(int dir_fd, const char *name);

/*
 * The next entry other than "." and "..", for `while (wb_next_entry(dir, &entry, &r))`. The caller sets *result to 0
 * first. Returns false at the end, and when *result is not 0. If a read fails, *result is its negative errno: an entry
 * that a failing disk cannot deliver must not be taken for an absent one, as readdir's NULL suggests.
 */
bool wb_next_entry(DIR *dir, struct dirent **entry, int *result);

/* fdopendir(3), but closes fd on failure. NULL and errno on failure. */
DIR *wb_opendir_of(int fd);

/* Whether it is "." or "..": no code here treats them as entries. */
bool wb_is_dots(const char *name);
