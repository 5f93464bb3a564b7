/* SPDX-License-Identifier: LGPL-2.1-or-later */
#ifndef WAYBACK_HELD_H
#define WAYBACK_HELD_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/stat.h>
#include <sys/types.h>
#include <time.h>

/*
 * Writes restored objects, for vrevert, vextract and vreceive, in directories where other users may rename entries at
 * the same time. Each object is created or opened once and compared with the expected inode; every change to it uses
 * that one descriptor, and no symbolic link is followed on the path to it.
 *
 * Functions return 0, or the value that their comment names, or a negative errno. The caller closes descriptors that
 * they return. All functions are thread-safe.
 */

/*
 * Opens dir_fd/path ("" or ".": the directory itself). No component may be a symbolic link (-ELOOP) or lead out of
 * dir_fd (-EXDEV); with O_PATH | O_NOFOLLOW the last component may be a link, and the link itself is opened. Returns a
 * descriptor.
 */
int wb_open_beneath(int dir_fd, const char *path, int flags);

/* As wb_open_beneath. Also -EXDEV if the path leads into another mount. */
int wb_open_in_mount(int dir_fd, const char *path, int flags);

/*
 * Opens a directory that the user named. Symbolic links in the path are followed only if root or the caller owns them
 * (else -ELOOP): the owner of a link could change it at any time. Returns an O_PATH descriptor.
 */
int wb_open_named_dir(const char *path);

/*
 * Opens the object dir_fd/name, of any type, with O_PATH and without following a link. If `expected` is not NULL, the
 * object must be that inode, else -ESTALE: the name was given to another one. Returns a descriptor.
 */
int wb_hold(int dir_fd, const char *name, const struct stat *expected);

/* Opens the object of the O_PATH descriptor `fd`, without using its name again. Returns a descriptor. */
int wb_held_open(int fd, int flags);

/* Gives the object of `fd` another name (a hard link). */
int wb_held_link(int fd, int dir_fd, const char *name);

/*
 * Renames the object of `fd`, which is at from_dir/from, as renameat2(2) does; `flags` are those of that call. -ESTALE
 * if another object has the new name afterwards.
 */
int wb_held_rename(int fd, int from_dir, const char *from, int to_dir, const char *to, unsigned flags);

/*
 * Creates dir_fd/name, which must not exist: a regular file (open for reading and writing), a directory (open), a
 * symbolic link to `target`, a fifo, socket or device (O_PATH). Its owner is the caller, its mode 0600 or 0700. If
 * others may rename entries of the directory, anything but a regular file is created in a directory that only the
 * caller can enter, and then moved. Returns a descriptor.
 */
int wb_held_make(int dir_fd, const char *name, mode_t type, dev_t device, const char *target);

/* ---- attributes ------------------------------------------------------------------------------ */

struct wb_held_xattr {
    const char *name;
    const void *value; /* NULL: leave the attribute unchanged */
    size_t size;
};

struct wb_held_attrs {
    mode_t mode; /* including the file type */
    uid_t uid;
    gid_t gid;
    struct timespec times[2];
    bool has_xattrs; /* false: leave all extended attributes unchanged */
    const struct wb_held_xattr *xattrs;
    size_t xattr_count;
};

enum wb_held_flags {
    WB_HELD_DRY = 1 << 0,       /* only compare                                                           */
    WB_HELD_TOUCHED = 1 << 1,   /* the content was changed: set the times in any case                     */
    WB_HELD_ELSEWHERE = 1 << 2, /* a copy in another place: skip attributes that are bound to the place   */
    WB_HELD_FOREIGN = 1 << 3,   /* another user wrote the bytes: set set-id bits only if the caller is root */
};

struct wb_held_setting {
    unsigned flags;
    /* Called if `what` (of an extended attribute: the one named `xattr`) could not be set. Returns 0 to ignore that,
     * else the -errno that wb_held_set returns at its end. */
    int (*failed)(void *data, const char *what, const char *xattr, int error);
    /* Sets the inode flags (chattr(1)); they come last because they may forbid other changes. Returns 1 if it changed
     * them, 0 or -errno. May be NULL. */
    int (*set_flags)(void *data, int fd);
    void *data;
};

/*
 * Sets owner, extended attributes (including ACLs), mode, file capabilities, times and flags of the object of `fd`, in
 * this order; attributes that are equal already are not set. If the owner cannot be set, the mode is set without set-id
 * bits. A failure does not prevent the attributes after it from being set. Returns 1 if an attribute was changed (with
 * WB_HELD_DRY: would be), 0 if none was, or the -errno of the first failure.
 */
int wb_held_set(int fd, const struct wb_held_attrs *want, const struct wb_held_setting *setting);

/*
 * Returns whether the attributes are those of a program that runs with more rights than its caller: a regular file with
 * set-id bits or file capabilities. Such a file must be written as a new file and renamed, never in place: the former
 * owner of the file in place may still have it mapped for writing.
 */
bool wb_held_has_power(const struct wb_held_attrs *attrs);

/*
 * Call this on the open file `fd` before its content is replaced in place: removes set-id bits, file capabilities, and
 * permissions that the mode `want` does not contain.
 */
int wb_held_disarm(int fd, mode_t want);

#endif
