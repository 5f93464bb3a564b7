/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

/*
 * Landlock: from here on the calling thread, and all that are made after it, can open, make, rename and remove only
 * what is below given places, by whatever path or descriptor. It does not keep them from what needs no open file:
 * stat, chmod, chown, times and extended attributes.
 */

#include <stddef.h>

enum wb_landlock_access {
    WB_LANDLOCK_READ,    /* read files and lists */
    WB_LANDLOCK_PROGRAM, /* the same, and execute programs */
    WB_LANDLOCK_DEVICE,  /* read and write, and use ioctl(2) on devices */
    WB_LANDLOCK_CHANGE,  /* everything but to execute programs and to use ioctl(2) on devices */
};

struct wb_landlock_place {
    int fd; /* of a file, or of a directory, for all that is in it; may be O_PATH; -1: there is no such place */
    enum wb_landlock_access access;
};

/*
 * Needs no_new_privs or CAP_SYS_ADMIN, and Linux 5.19: renames between directories are refused by older ones. 0;
 * -EOPNOTSUPP: the kernel has no Landlock, or not that much; -errno.
 */
int wb_landlock_enter(const struct wb_landlock_place *places, size_t count);
