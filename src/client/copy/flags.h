/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

/* The flags of an inode, as chattr(1) and FS_IOC_FSSETXATTR set them. */

#include <stdbool.h>
#include <sys/stat.h>

/*
 * Gives what `held` holds (wb_hold, or open) the flags of from_dir/from_name, as far as users set them. `mode`: the
 * type of both. 1 if something was (with `dry`: would be) changed, 0 also where either has no flags, or -errno.
 */
int wb_copy_flags(int from_dir, const char *from_name, int held, mode_t mode, bool dry);

/*
 * The flags of `from` to `to`, two files or two directories that are open for more than their path. "Immutable" and
 * "append only" are not set but returned in *ret_locks, since nothing can be changed after them: see wb_set_locks. What
 * the file system or the user may not have is left out, each flag for itself. 0, also where there are no flags, or
 * -errno.
 */
int wb_copy_unlocked_flags(int from, int to, int *ret_locks);

/* Sets those that wb_copy_unlocked_flags returned. 0, also if the user may not, or -errno. */
int wb_set_locks(int fd, int locks);

#define WB_FLAGS_TEXT_MAX 96

/*
 * Whether two files, or two directories, differ in the flags that a user sets: 1, 0 also if either has none, or
 * -errno. If they do, the texts have the letters of lsattr(1), "-" for none, and what else differs: project, extent
 * sizes, other flags.
 */
int wb_flags_differ(int old_fd, int new_fd, char old_text[WB_FLAGS_TEXT_MAX], char new_text[WB_FLAGS_TEXT_MAX]);

/* Clears "immutable" and "append only" of what `held` holds. 1 if one was (with `dry`: is) set, 0, or -errno. */
int wb_unlock_flags(int held, mode_t mode, bool dry);
