/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

/*
 * Directories as streams of names.
 */

#include <dirent.h>
#include <stdbool.h>

/*
 * opendir(3) of dir_fd/name, "." for a stream of its own over dir_fd itself, which may be O_PATH. No symbolic link is
 * followed. NULL and errno.
 */
DIR *wb_opendir_at(int dir_fd, const char *name);

/* "." or "..", which every directory has and which are no entries to anybody here. */
bool wb_is_dots(const char *name);
