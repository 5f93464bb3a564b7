/* SPDX-License-Identifier: LGPL-2.1-or-later */
#ifndef WAYBACK_HELD_H
#define WAYBACK_HELD_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/stat.h>
#include <sys/types.h>
#include <time.h>

/*
 * How a restored object is written: by all that restore (vrevert, vextract, vreceive), in directories where somebody
 * else may rename at the same time. Each object is made, or opened, once; it is compared with the inode that is meant;
 * everything that changes it goes through that one descriptor, and no symbolic link is followed on the way to it.
 * Functions return 0 (or as described) or a negative errno.
 */

/*
 * Opens dir_fd/path ("" or ".": the directory itself). No component may be a symbolic link (-ELOOP) or lead out of
 * dir_fd (-EXDEV); with O_PATH | O_NOFOLLOW the last one may be a link, which is opened itself. A descriptor or -errno.
 */
int wb_open_beneath(int dir_fd, const char *path, int flags);

/*
 * Opens a directory that the user named. Symbolic links in the path are followed if they belong to root or to the
 * caller; one that somebody else made could lead anywhere by the time it is followed: -ELOOP. O_PATH descriptor or
 * -errno.
 */
int wb_open_named_dir(const char *path);

/*
 * Holds the object that dir_fd/name is, of any type (O_PATH), without following a link. If `expected` is not NULL it
 * must be that inode, else -ESTALE: somebody gave the name to another one. A descriptor or -errno.
 */
int wb_hold(int dir_fd, const char *name, const struct stat *expected);

/* Opens the object that `fd` holds, without using its name again. A descriptor or -errno. */
int wb_held_open(int fd, int flags);

/* Gives the object that `fd` holds another name. */
int wb_held_link(int fd, int dir_fd, const char *name);

/*
 * Renames (as renameat2(2), `flags`) the object that `fd` holds, and which is at from_dir/from. -ESTALE if another
 * object got the new name.
 */
int wb_held_rename(int fd, int from_dir, const char *from, int to_dir, const char *to, unsigned flags);

/*
 * Makes dir_fd/name, which must not exist: a regular file (open for reading and writing), a directory (open), a
 * symbolic link to `target`, a fifo, socket or device (held). Its owner is the caller, its mode 0600 or 0700. Where
 * others may rename in the directory, anything but a file is made in a directory that nobody else can enter, and moved
 * from there. A descriptor or -errno.
 */
int wb_held_make(int dir_fd, const char *name, mode_t type, dev_t device, const char *target);

/* ---- attributes ------------------------------------------------------------------------------ */

struct wb_held_xattr {
    const char *name;
    const void *value; /* NULL: it is left as it is */
    size_t size;
};

struct wb_held_attrs {
    mode_t mode; /* with the type */
    uid_t uid;
    gid_t gid;
    struct timespec times[2];
    bool has_xattrs; /* else extended attributes are left as they are */
    const struct wb_held_xattr *xattrs;
    size_t xattr_count;
};

enum wb_held_flags {
    WB_HELD_DRY = 1 << 0,       /* only compare                                                  */
    WB_HELD_TOUCHED = 1 << 1,   /* the content was changed: the times are set in any case        */
    WB_HELD_ELSEWHERE = 1 << 2, /* a copy in another place: no attributes that belong to a place */
    WB_HELD_FOREIGN = 1 << 3,   /* the bytes are another user's: only root gives set-id bits     */
};

struct wb_held_setting {
    unsigned flags;
    /* `what` (`xattr`: that attribute) could not be set: 0 to do without it, else the -errno to return in the end. */
    int (*failed)(void *data, const char *what, const char *xattr, int error);
    /* Sets the flags of the inode (chattr(1)), after which it may take no other change: 1, 0 or -errno. May be NULL. */
    int (*set_flags)(void *data, int fd);
    void *data;
};

/*
 * Gives the object that `fd` holds owner, extended attributes (ACLs are some), mode, file capabilities, times and
 * flags, in this order; it touches nothing that is equal. If the owner cannot be given, the mode is given without
 * set-id bits. 1 if something was (with WB_HELD_DRY: would be) changed, 0, or -errno: the first failure. What can
 * be set is set in any case.
 */
int wb_held_set(int fd, const struct wb_held_attrs *want, const struct wb_held_setting *setting);

/*
 * Whether the attributes are those of a program that runs with more rights than its caller has: a regular file with
 * set-id bits or file capabilities. Such a file is not made of another one in place, because a user who owned the other
 * one may still have it mapped for writing: it is made anew, complete, and renamed.
 */
bool wb_held_has_power(const struct wb_held_attrs *attrs);

/*
 * Before the content of a file is replaced in place, `fd` being open for that: takes set-id bits and file capabilities
 * away, and rights that it is not to have with the mode `want`.
 */
int wb_held_disarm(int fd, mode_t want);

#endif
