/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

/*
 * Landlock: from now on the calling thread, and all threads created after it, can open, create, rename and remove only
 * objects below the given places, through any path or descriptor. It does not restrict calls that need no open file:
 * stat, chmod, chown, times and extended attributes.
 */

#include <stddef.h>

enum wb_landlock_access {
    WB_LANDLOCK_LIST,    /* read lists, not files */
    WB_LANDLOCK_READ,    /* read files and lists */
    WB_LANDLOCK_PROGRAM, /* read, and execute programs */
    WB_LANDLOCK_DEVICE,  /* read and write, and use ioctl(2) on devices */
    WB_LANDLOCK_CHANGE,  /* everything except executing programs and ioctl(2) on devices */
};

struct wb_landlock_place {
    int fd; /* a file, or a directory and everything below it; may be O_PATH; -1: this place does not exist */
    enum wb_landlock_access access;
};

/*
 * Needs no_new_privs or CAP_SYS_ADMIN, and Linux 5.19: older kernels refuse renames between directories. 0;
 * -EOPNOTSUPP: the kernel has no Landlock, or an older version of it; -errno.
 */
int wb_landlock_enter(const struct wb_landlock_place *places, size_t count);
