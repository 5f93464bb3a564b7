/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "base/enclose.h"

#include "base/cleanup.h"
#include "base/dir.h"
#include <errno.h>
#include <fcntl.h>
#include <glib.h>
#include <sched.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

/* By number: C libraries do not all know them. */
#ifndef SYS_open_tree
#define SYS_open_tree 428
#endif
#ifndef SYS_move_mount
#define SYS_move_mount 429
#endif
#define NEW_mount_setattr 442

#ifndef OPEN_TREE_CLONE
#define OPEN_TREE_CLONE 1
#endif
#define FROM_FD 0x4 /* MOVE_MOUNT_F_EMPTY_PATH */

/* struct mount_attr and its flags. */
struct attributes {
    uint64_t set, cleared, propagation, user_fd;
};
#define RDONLY 0x1
#define NOSUID 0x2
#define NODEV 0x4

#define PLACES_MAX 24

static int clone_mount(int fd)
{
    return (int)syscall(SYS_open_tree, fd, "", OPEN_TREE_CLONE | AT_RECURSIVE | AT_EMPTY_PATH | O_CLOEXEC);
}

/* Linux 5.12; without it, the other barriers remain. */
static void limit(int fd, bool read_only)
{
    struct attributes attributes = {.set = NOSUID | NODEV | (read_only ? RDONLY : 0), .propagation = MS_PRIVATE};

    (void)syscall(NEW_mount_setattr, fd, "", AT_EMPTY_PATH | AT_RECURSIVE, &attributes, sizeof(attributes));
}

/* `path` relative to the current directory, with its parents. */
static int attach(int fd, const char *path)
{
    return g_mkdir_with_parents(path, 0700) < 0 ? -1 : (int)syscall(SYS_move_mount, fd, "", AT_FDCWD, path, FROM_FD);
}

/* The directory that the process is in becomes its root directory. A root file system in memory cannot be left, only
 * covered. */
static int enter_root(void)
{
    if (syscall(SYS_pivot_root, ".", ".") == 0)
        return umount2(".", MNT_DETACH);
    return mount(".", "/", NULL, MS_MOVE, NULL) < 0 ? -1 : chroot(".");
}

static int attach_all(const int *clones, int proc, const struct wb_enclosed *places, size_t count)
{
    if (mount("wayback", "/proc", "tmpfs", MS_NOSUID | MS_NODEV | MS_NOEXEC, "mode=0700,size=64k") < 0 ||
        chdir("/proc") < 0 || attach(proc, "proc") < 0)
        return -errno;
    for (size_t i = 0; i < count; i++)
        if (attach(clones[i], places[i].path + 1) < 0)
            return -errno;
    if (mount(NULL, ".", NULL, MS_REMOUNT | MS_BIND | MS_RDONLY | MS_NOSUID | MS_NODEV | MS_NOEXEC, NULL) < 0 ||
        enter_root() < 0 || chdir("/") < 0)
        return -errno;
    return 1;
}

/* A descriptor can be cloned only in the mount namespace that it was opened in. */
int wb_enclose(const struct wb_enclosed *places, size_t count, bool read_only)
{
    _cleanup_close_ int at = open("/proc", O_PATH | O_DIRECTORY | O_CLOEXEC);
    _cleanup_close_ int proc = -1;
    int clones[PLACES_MAX];
    size_t n = 0;
    int r = 0;

    if (geteuid() != 0 || at < 0 || count > PLACES_MAX)
        return 0;
    proc = clone_mount(at);
    while (proc >= 0 && n < count && (clones[n] = clone_mount(places[n].fd)) >= 0)
        limit(clones[n++], read_only);
    if (proc >= 0 && n == count && unshare(CLONE_NEWNS) == 0 &&
        mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) == 0)
        r = attach_all(clones, proc, places, count);
    while (n > 0)
        wb_close_fd(&clones[--n]);
    return r;
}

void wb_enclose_close_directories(const int *kept, size_t count)
{
    _cleanup_closedir_ DIR *dir = wb_opendir_at(AT_FDCWD, "/proc/self/fd");
    struct dirent *entry;
    struct stat st;
    int r = 0;

    while (dir && wb_next_entry(dir, &entry, &r)) {
        int fd = atoi(entry->d_name);
        bool keep = fd <= STDERR_FILENO || fd == dirfd(dir);

        for (size_t i = 0; !keep && i < count; i++)
            keep = kept[i] == fd;
        if (!keep && fstat(fd, &st) == 0 && S_ISDIR(st.st_mode))
            close(fd);
    }
}
