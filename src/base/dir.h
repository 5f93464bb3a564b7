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

/*
 * The next entry that is neither "." nor "..", for `while (wb_next_entry(dir, &entry, &r))`: false at the end, or where
 * *result is not 0, as it has to be at first. A read that fails is negative errno there: what a failing disk does not
 * give must not be taken for what is not there, as readdir's NULL invites to.
 */
bool wb_next_entry(DIR *dir, struct dirent **entry, int *result);

/* fdopendir(3), except that fd is closed where it fails. NULL and errno. */
DIR *wb_opendir_of(int fd);

/* "." or "..", which every directory has and which are no entries to anybody here. */
bool wb_is_dots(const char *name);
