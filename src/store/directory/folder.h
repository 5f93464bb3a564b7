/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

/*
 * The folders of object files: objects/00 to objects/ff, by the last byte of the inode number. A store may have a
 * million files, so no caller iterates over all of them at once.
 */

#define WB_FOLDERS 256u

/*
 * Calls `take` with the name of each entry of a folder below `dir_fd` (the store, or the graveyard) and a descriptor of
 * the folder, until it returns something other than 0, which is returned. Entries created meanwhile may be included or
 * not; the callback may remove an entry. 0, also if the folder does not exist; or -errno.
 */
int wb_shard_each(int dir_fd, unsigned folder, int (*take)(void *data, int fd, const char *name), void *data);
