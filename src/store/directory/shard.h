/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

/*
 * The shards of object files: objects/00 to objects/ff (WB_SHARDS, format/format.h), by the last byte of the inode
 * number. A store may have a million files, so no caller iterates over all of them at once.
 */

#include "store/store.h"

/*
 * Calls `take` with the name of each entry of a shard below `dir_fd` (the store, or the graveyard) and a descriptor of
 * the shard, until it returns something other than 0, which is returned. Entries created meanwhile may be included or
 * not; the callback may remove an entry. 0, also if the shard does not exist; or -errno.
 */
int wb_shard_each(int dir_fd, unsigned shard, int (*take)(void *data, int fd, const char *name), void *data);

/* As wb_store_open_file, but does not compare the file with the manifest. */
int wb_store_open_file_as_is(const struct wb_store *store, struct wb_object object, enum wb_object_file file,
                             int flags);
