/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "daemon/system/covered.h"

#include "base/cleanup.h"
#include "daemon/system/detach.h"
#include <errno.h>
#include <fcntl.h>
#include <glib.h>
#include <pthread.h>
#include <sched.h>
#include <stdbool.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/vfs.h>
#include <unistd.h>

/* Newer than many C libraries; the numbers are the same wherever new calls are numbered alike. */
#ifndef SYS_open_tree
#define SYS_open_tree 428
#endif
#ifndef SYS_move_mount
#define SYS_move_mount 429
#endif
#ifndef OPEN_TREE_CLONE
#define OPEN_TREE_CLONE 1
#endif
#ifndef OPEN_TREE_CLOEXEC
#define OPEN_TREE_CLOEXEC O_CLOEXEC
#endif
#define FROM_FD 0x00000004u /* MOVE_MOUNT_F_EMPTY_PATH */
#define TO_FD 0x00000040u   /* MOVE_MOUNT_T_EMPTY_PATH */
#define BENEATH 0x00000200u /* MOVE_MOUNT_BENEATH, Linux 6.5 */

/* The identifier that is never given out twice, if the kernel (6.8) and the C library have it. */
#ifdef STATX_MNT_ID_UNIQUE
#define MOUNT_ID STATX_MNT_ID_UNIQUE
#else
#define MOUNT_ID 0x4000u
#endif
#ifndef STATX_MNT_ID
#define STATX_MNT_ID 0x1000u
#endif

struct look {
    const char *path;
    int result;
};

static bool is_dead(int fd)
{
    struct statfs fs;

    return fstatfs(fd, &fs) < 0 && errno == ENOTCONN;
}

/* Sends no request: the mount may not be served yet. Returns 0 if the identifier is unknown. */
static uint64_t mount_id(int fd)
{
    struct statx stx;

    if (statx(fd, "", AT_EMPTY_PATH | AT_STATX_DONT_SYNC, MOUNT_ID | STATX_MNT_ID, &stx) < 0 ||
        !(stx.stx_mask & (MOUNT_ID | STATX_MNT_ID)))
        return 0;
    return stx.stx_mnt_id;
}

static int open_top(const char *path)
{
    return open(path, O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
}

/* ---- the directory below --------------------------------------------------------------------- */

/* The thread has a mount namespace of its own, where it detaches the dead mount: in all others the mount stays. */
static void *open_in_namespace(void *data)
{
    struct look *look = data;

    if (unshare(CLONE_FS | CLONE_NEWNS) < 0 || mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) < 0) {
        look->result = -errno;
        return NULL;
    }
    for (;;) {
        _cleanup_close_ int top = open_top(look->path);

        if (top < 0 || !is_dead(top))
            break;
        if (umount2(look->path, MNT_DETACH | UMOUNT_NOFOLLOW) < 0) {
            look->result = -errno;
            return NULL;
        }
    }
    look->result = open(look->path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (look->result < 0)
        look->result = -errno;
    return NULL;
}

/*
 * The same directory through the mount that everybody has: files are renamed between it and a store elsewhere, which
 * the kernel refuses between two mounts. Fails if SRC is the root of a mount: then no path leads to that mount.
 */
static int reopen(int fd, const char *path)
{
    g_autofree struct file_handle *handle = g_malloc0(sizeof(*handle) + MAX_HANDLE_SZ);
    g_autofree char *parent = g_path_get_dirname(path);
    _cleanup_close_ int parent_fd = open(parent, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    _cleanup_close_ int again = -1;
    struct stat before, after;
    int unused;

    handle->handle_bytes = MAX_HANDLE_SZ;
    if (parent_fd < 0 || name_to_handle_at(fd, "", handle, &unused, AT_EMPTY_PATH) < 0)
        return -EXDEV;
    again = open_by_handle_at(parent_fd, handle, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (again < 0 || fstat(fd, &before) < 0 || fstat(again, &after) < 0 || before.st_dev != after.st_dev ||
        before.st_ino != after.st_ino)
        return -EXDEV;
    return wb_steal_fd(&again);
}

int wb_covered_open(const char *path)
{
    struct look look = {.path = path, .result = -EPERM};
    pthread_t thread;
    int r, again;

    if (geteuid() != 0)
        return -EPERM;
    r = pthread_create(&thread, NULL, open_in_namespace, &look);
    if (r != 0)
        return -r;
    pthread_join(thread, NULL);
    if (look.result < 0)
        return look.result;
    again = reopen(look.result, path);
    if (again < 0)
        return look.result;
    close(look.result);
    return again;
}

/* ---- the new mount --------------------------------------------------------------------------- */

static int attach(int tree_fd, int dead_fd, unsigned flags)
{
    return (int)syscall(SYS_move_mount, tree_fd, "", dead_fd, "", FROM_FD | TO_FD | flags);
}

int wb_covered_replace(struct wb_covered *ret, const char *from, const char *path, struct wb_error *why)
{
    _cleanup_close_ int tree_fd = (int)syscall(SYS_open_tree, AT_FDCWD, from, OPEN_TREE_CLONE | OPEN_TREE_CLOEXEC);
    _cleanup_close_ int dead_fd = open_top(path);
    _cleanup_close_ int top_fd = -1;

    if (tree_fd < 0 || dead_fd < 0)
        return wb_error_set(why, -errno, "%s: cannot replace the dead mount (%s); unmount it, and mount again", path,
                            g_strerror(errno));
    /* Somebody else has detached it or mounted there: only a dead mount is replaced. */
    if (!is_dead(dead_fd))
        return wb_error_set(why, -EBUSY,
                            "%s: cannot replace the dead mount (another process has unmounted it); "
                            "mount again",
                            path);
    *ret = (struct wb_covered){.mount_id = mount_id(tree_fd)};
    if (attach(tree_fd, dead_fd, BENEATH) == 0) {
        top_fd = open_top(path);
        if (top_fd >= 0 && mount_id(top_fd) == mount_id(dead_fd))
            umount2(path, MNT_DETACH | UMOUNT_NOFOLLOW);
        return 0;
    }
    ret->on_top = true;
    if (attach(tree_fd, dead_fd, 0) == 0)
        return 0;
    return wb_error_set(why, -errno, "%s: cannot mount over the dead mount (%s); unmount it, and mount again", path,
                        g_strerror(errno));
}

void wb_covered_detach(const struct wb_covered *covered, const char *path)
{
    _cleanup_close_ int fd = open_top(path);

    if (fd >= 0 && mount_id(fd) == covered->mount_id)
        wb_detach(path);
    while (covered->on_top && wb_detach_is_dead(path) && wb_detach(path) == 0)
        continue;
}
