/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "daemon/system/detach.h"

#include "base/cleanup.h"
#include "base/io.h"
#include "wayback/control.h"
#include "wayback/held.h"
#include "wayback/mounts.h"
#include <errno.h>
#include <glib.h>
#include <spawn.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/vfs.h>
#include <sys/wait.h>
#include <unistd.h>

extern char **environ;

/* Not by a link of another user on the way: they renamed a directory above the mount, and it leads to another mount. */
static int detach_as_root(const char *mountpoint)
{
    g_autofree char *parent = g_path_get_dirname(mountpoint), *name = g_path_get_basename(mountpoint), *path = NULL;
    _cleanup_close_ int fd = wb_open_named_dir(parent);
    char link[32];

    if (fd < 0)
        return fd;
    path = g_build_filename(wb_fd_path(fd, link), name, NULL);
    return umount2(path, MNT_DETACH | UMOUNT_NOFOLLOW) < 0 ? -errno : 0;
}

int wb_detach(const char *mountpoint)
{
    char *argv[] = {(char *)"fusermount3", (char *)"-u", (char *)"-q", (char *)"-z",
                    (char *)"--", (char *)mountpoint, NULL};
    pid_t pid;
    int status;

    /* fusermount3 has no more rights than root, who may not execute it (seccomp.h). */
    if (geteuid() == 0)
        return detach_as_root(mountpoint);
    if (posix_spawnp(&pid, "fusermount3", NULL, NULL, argv, environ) != 0)
        return -ENOENT;
    return waitpid(pid, &status, 0) == pid && status == 0 ? 0 : -EPERM;
}

/* The path of the mount: its last component cannot be looked at any more. */
static char *resolve_parent(const char *path)
{
    g_autofree char *absolute = g_canonicalize_filename(path, NULL);
    g_autofree char *parent = g_path_get_dirname(absolute);
    g_autofree char *name = g_path_get_basename(absolute);
    char *real = realpath(parent, NULL), *joined;

    if (!real)
        return NULL;
    joined = g_build_filename(real, name, NULL);
    free(real);
    return joined;
}

static bool is_our_mount(const char *mountpoint)
{
    g_autoptr(GPtrArray) list = wb_listed_mounts();
    bool ours = false;

    for (guint i = 0; i < list->len; i++) {
        const struct wb_listed *listed = list->pdata[i];

        /* The last one mounted there is the one on top. An overlay of layers of ours is a branch. */
        if (strcmp(listed->point, mountpoint) == 0)
            ours = strcmp(listed->type, "fuse.wayback") == 0 ||
                   (strcmp(listed->type, "overlay") == 0 && strstr(listed->options, "/" WB_LAYERS_PREFIX));
    }
    return ours;
}

char *wb_detach_find_dead(const char *path)
{
    g_autofree char *mountpoint = NULL;
    struct statfs fs;

    /* Not stat(2): attributes may still be in the kernel's cache. */
    if (statfs(path, &fs) == 0 || errno != ENOTCONN)
        return NULL;
    mountpoint = resolve_parent(path);
    return mountpoint && is_our_mount(mountpoint) ? g_steal_pointer(&mountpoint) : NULL;
}

bool wb_detach_is_dead(const char *path)
{
    g_autofree char *mountpoint = wb_detach_find_dead(path);

    return mountpoint != NULL;
}

void wb_detach_if_dead(const char *path)
{
    g_autofree char *mountpoint = wb_detach_find_dead(path);

    if (mountpoint)
        wb_detach(mountpoint);
}
