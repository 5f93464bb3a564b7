/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

/*
 * The files of objects lie in folders, objects/00 to objects/ff, by the last byte of the inode number. A store may have
 * a million of them, so nobody goes through all at once.
 */

#define WB_FOLDERS 256u

/*
 * Calls `take` with the name of each entry of a folder below `dir_fd` (the store, or the graveyard) and a descriptor of
 * the folder, until it returns something other than 0, which is returned. What is made meanwhile may be met or not; an
 * entry may be removed. 0, also where there is no such folder; or -errno.
 */
int wb_folder_each(int dir_fd, unsigned folder, int (*take)(void *data, int fd, const char *name), void *data);
