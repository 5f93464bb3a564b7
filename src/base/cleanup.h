/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

/*
 * Typed cleanup for what GLib's g_autoptr does not know: descriptors and DIR streams.
 */

#include <dirent.h>
#include <unistd.h>

/* It is -1 afterwards: what is closed early, by hand, must not be closed again, when the number is somebody else's. */
static inline void wb_close_fd(int *fd)
{
    if (*fd >= 0)
        close(*fd);
    *fd = -1;
}
#define _cleanup_close_ __attribute__((cleanup(wb_close_fd)))

static inline void wb_close_dir(DIR **dir)
{
    if (*dir)
        closedir(*dir);
    *dir = NULL;
}
#define _cleanup_closedir_ __attribute__((cleanup(wb_close_dir)))

/* Hands a descriptor on: the variable no longer owns it. */
static inline int wb_steal_fd(int *fd)
{
    int stolen = *fd;

    *fd = -1;
    return stolen;
}
