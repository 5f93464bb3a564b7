/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

/*
 * Content and attributes from one place to another: from the past to a copy of it (vextract) or
 * to the present (vrevert). Everything returns 0 or a negative errno unless said otherwise.
 */

#include <stdbool.h>
#include <stdint.h>
#include <sys/stat.h>

/* The content of `from` to the empty file `to`; blocks of zeros become holes. */
int wb_copy_data(int from, int to);

/* The content of `from` to a stream. */
int wb_copy_stream(int from, int to);

/* Whether both have the same content: 1, 0 or a negative errno. */
int wb_copy_equal(int from, int to);

/*
 * Makes the content of `to` (open for reading and writing; reading alone with `dry`) that of
 * `from`, touching only blocks that differ. *ret_changed: bytes that did.
 */
int wb_copy_differences(int from, int to, bool dry, uint64_t *ret_changed);

/*
 * A new object of the type and the device or link target of from_dir/from_name; a file or directory is empty
 * (wb_held_make). A descriptor or -errno.
 */
int wb_copy_make(int from_dir, const char *from_name, const struct stat *st, int to_dir, const char *to_name);

/* Whether from_dir/from_name is a program with power (wb_held_has_power): 1, 0 or -errno. */
int wb_copy_has_power(int from_dir, const char *from_name, const struct stat *from);

enum wb_attrs_flags {
    WB_ATTRS_DRY = 1 << 0,     /* only compare                                                    */
    WB_ATTRS_LENIENT = 1 << 1, /* a copy elsewhere: owner and attributes as far as one may set them */
    WB_ATTRS_TOUCHED = 1 << 2, /* the content was changed: times are to be set in any case        */
    WB_ATTRS_NO_FLAGS = 1 << 3, /* not those of chattr(1): a file with them may not be renamed     */
};

/*
 * Gives what `to` holds (wb_hold, or open) the owner, extended attributes (ACLs are some), mode and times of
 * from_dir/from_name; equal attributes are not touched. from_name may be "." for the directory itself.
 * Returns 1 if something was (or, with DRY, would be) changed, 0, or -errno: the first failure, the
 * rest being done as far as it can be. *what: which attribute failed.
 */
int wb_copy_attrs(int from_dir, const char *from_name, const struct stat *from, int to, unsigned flags,
                  const char **what);
