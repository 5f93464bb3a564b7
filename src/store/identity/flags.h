/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

/* Reads and sets the flags of an inode (chattr(1)) in the form of records. */

#include "format/format.h"
#include <stdbool.h>
#include <sys/types.h>

/*
 * The flags of a regular file or directory that a user can set. `fd` may be O_PATH. 0, -EOPNOTSUPP if the file system
 * or the type of file has no flags, or -errno.
 */
int wb_flags_read(int fd, struct wb_flags *ret);

/*
 * Sets them on a regular file or directory; `fd` must not be O_PATH. "immutable" and "append only", after which the
 * inode accepts no other change, are set last, and only with `locks`; without `locks` they are cleared. If the file
 * system accepts only some of the flags, these are set and the error is returned. 1 if something changed, 0, or -errno.
 */
int wb_flags_set(int fd, const struct wb_flags *flags, bool locks);

/* Clears "immutable" and "append only" of the held object (wb_hold). 0, also if neither was set, or -errno. */
int wb_flags_clear_locks(int held);

/* As wb_getxattr_fd, and for WB_FLAGS_NAME the encoded flags. */
ssize_t wb_recorded_xattr(int fd, const char *name, void *value, size_t size);
