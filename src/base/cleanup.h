/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

/*
 * Typed cleanup for resources that g_autoptr of GLib does not cover: descriptors and DIR streams.
 */

#include <dirent.h>
#include <unistd.h>

/* Sets *fd to -1: a descriptor that was closed early by hand must not be closed again, because its number may belong to
 * another file by then. */
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

/* Transfers ownership of a descriptor: returns it and sets *fd to -1. */
static inline int wb_steal_fd(int *fd)
{
    int stolen = *fd;

    *fd = -1;
    return stolen;
}
