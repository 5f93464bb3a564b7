/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * A process that reads a stream of others, and can reach nothing but the copy that the stream is for.
 *
 * Whoever makes a copy carries out what the stream says, and so decodes it: a process that only checked it before would
 * hand on the same bytes. Therefore all of it happens in a process to which nothing is left but the copy.
 */
#include "wayback/copy.h"

#include "base/cleanup.h"
#include "base/dir.h"
#include "base/sandbox/capabilities.h"
#include "base/sandbox/filter.h"
#include "base/sandbox/landlock.h"
#include "base/sandbox/prepare.h"
#include "store/inflight/mounted.h"
#include "store/store.h"
#include <errno.h>
#include <fcntl.h>
#include <glib.h>
#include <linux/close_range.h>
#include <linux/mount.h>
#include <linux/seccomp.h>
#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/socket.h>
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
#define NEW_close_range 436

#ifndef OPEN_TREE_CLONE
#define OPEN_TREE_CLONE 1
#endif
#define FROM_FD 0x4 /* MOVE_MOUNT_F_EMPTY_PATH */

/* Where the copy is once there is nothing else. */
#define COPY "/copy"

/* Files of all users with all that they have, as the stream says. */
#define KEPT \
    (WB_CAP(CAP_DAC_OVERRIDE) | WB_CAP(CAP_CHOWN) | WB_CAP(CAP_FOWNER) | WB_CAP(CAP_FSETID) | WB_CAP(CAP_SETFCAP) | \
     WB_CAP(CAP_MKNOD) | WB_CAP(CAP_LINUX_IMMUTABLE) | WB_CAP(CAP_SYS_ADMIN) | WB_CAP(CAP_SYS_RESOURCE))

/* ---- a directory that was made for the copy ------------------------------------------------------ */

/*
 * Removes it, if it is still empty, when asked or when the other process has ended: that one can no longer reach the
 * directory in which it is.
 */
_Noreturn static void undo_making(int fd, const char *dir)
{
    sigset_t all;
    char asked = 0;
    ssize_t n;

    sigfillset(&all);
    sigprocmask(SIG_SETMASK, &all, NULL);
    for (int i = 0; i <= STDERR_FILENO; i++)
        close(i);
    if (fd > STDERR_FILENO + 1)
        syscall(NEW_close_range, STDERR_FILENO + 1, fd - 1, 0);
    syscall(NEW_close_range, fd + 1, ~0u, 0);
    do
        n = read(fd, &asked, 1);
    while (n < 0 && errno == EINTR);
    rmdir(dir);
    if (n > 0)
        (void)!send(fd, &asked, 1, MSG_NOSIGNAL);
    _exit(EXIT_SUCCESS);
}

static int make(const char *dir, struct wb_copy_confinement *confinement)
{
    int fds[2];
    pid_t pid;

    if (mkdir(dir, 0700) < 0)
        return -errno;
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds) < 0 || (pid = fork()) < 0) {
        int r = -errno;

        rmdir(dir);
        return r;
    }
    if (pid == 0) {
        close(fds[0]);
        undo_making(fds[1], dir);
    }
    close(fds[1]);
    confinement->undo_fd = fds[0];
    return 0;
}

void wb_copy_confine_end(struct wb_copy_confinement *confinement)
{
    char asked = 0;

    if (confinement->undo_fd >= 0 && send(confinement->undo_fd, &asked, 1, MSG_NOSIGNAL) == 1)
        while (read(confinement->undo_fd, &asked, 1) < 0 && errno == EINTR)
            continue;
    wb_close_fd(&confinement->undo_fd);
}

/* ---- nothing but the copy ------------------------------------------------------------------------ */

static int clone_mount(const char *path)
{
    return (int)syscall(SYS_open_tree, AT_FDCWD, path, OPEN_TREE_CLONE | AT_RECURSIVE | O_CLOEXEC);
}

static int attach(int fd, const char *path)
{
    return mkdir(path, 0700) < 0 ? -1 : (int)syscall(SYS_move_mount, fd, "", AT_FDCWD, path, FROM_FD);
}

/* The directory that the process is in becomes its root directory. A root file system in memory cannot be left, only
 * covered. */
static int enter_root(void)
{
    if (syscall(SYS_pivot_root, ".", ".") == 0)
        return umount2(".", MNT_DETACH);
    return mount(".", "/", NULL, MS_MOVE, NULL) < 0 ? -1 : chroot(".");
}

/* A directory that a caller has left open leads to all that is above it. */
static void close_directories(void)
{
    _cleanup_closedir_ DIR *dir = wb_opendir_at(AT_FDCWD, "/proc/self/fd");
    struct dirent *entry;
    struct stat st;
    int r = 0;

    while (dir && wb_next_entry(dir, &entry, &r)) {
        int fd = atoi(entry->d_name);

        if (fd > STDERR_FILENO && fd != dirfd(dir) && fstat(fd, &st) == 0 && S_ISDIR(st.st_mode))
            close(fd);
    }
}

/*
 * Root's alone, and not in every container: a root directory that has the copy and /proc, in a mount namespace of its
 * own. What Landlock leaves open, modes and owners of other files, has no path there. Where the first step is refused,
 * nothing has changed; later ones leave no root directory, and are errors.
 */
static int leave_root(const char *dir, struct wb_error *why)
{
    _cleanup_close_ int proc = -1, copy = -1;

    if (geteuid() != 0 || unshare(CLONE_NEWNS) < 0)
        return 0;
    /* What others unmount is unmounted here as well. */
    if (mount(NULL, "/", NULL, MS_REC | MS_SLAVE, NULL) < 0)
        return 0;
    proc = clone_mount("/proc");
    copy = clone_mount(dir);
    if (proc < 0 || copy < 0)
        return 0;
    if (mount("wayback", "/proc", "tmpfs", MS_NOSUID | MS_NODEV | MS_NOEXEC, "mode=0700,size=64k") < 0 ||
        chdir("/proc") < 0 || attach(proc, "proc") < 0 || attach(copy, "copy") < 0 ||
        mount(NULL, ".", NULL, MS_REMOUNT | MS_BIND | MS_RDONLY | MS_NOSUID | MS_NODEV | MS_NOEXEC, NULL) < 0 ||
        enter_root() < 0 || chdir("/") < 0)
        return wb_error_set(why, -errno, "cannot be confined to the copy: %s", g_strerror(errno));
    return 1;
}

/* The store may be a mount of its own. */
static void note_mounts(const char *dir)
{
    _cleanup_close_ int fd = open(dir, O_PATH | O_DIRECTORY | O_CLOEXEC);
    _cleanup_close_ int store =
        fd < 0 ? -1 : openat(fd, WB_STORE_NAME, O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);

    if (fd >= 0)
        wb_mounted_note(fd);
    if (store >= 0)
        wb_mounted_note(store);
}

static int enter_landlock(const char *dir)
{
    struct wb_landlock_place places[] = {
        {open(dir, O_PATH | O_DIRECTORY | O_CLOEXEC), WB_LANDLOCK_CHANGE},
        {open("/proc", O_PATH | O_DIRECTORY | O_CLOEXEC), WB_LANDLOCK_READ},
    };
    int r = places[0].fd < 0 ? -errno : wb_landlock_enter(places, G_N_ELEMENTS(places));

    for (unsigned i = 0; i < G_N_ELEMENTS(places); i++)
        wb_close_fd(&places[i].fd);
    return r;
}

static int enter_filter(void)
{
    const struct wb_filter_rule rules[] = {
        {SYS_clone, 0, WB_FILTER_HAS_NONE_OF, WB_FILTER_NAMESPACES},
        {SYS_kill, 0, WB_FILTER_IS, (uint32_t)getpid()},
        {SYS_tgkill, 0, WB_FILTER_IS, (uint32_t)getpid()},
        {SYS_prlimit64, 0, WB_FILTER_IS, 0},
    };
    static const int more[] = {SYS_sendto}; /* to the process that undoes the making of the directory */
    const struct wb_filter_list lists[] = {wb_filter_basic, {more, G_N_ELEMENTS(more)}};
    const struct wb_filter filter = {
        .lists = lists, .list_count = G_N_ELEMENTS(lists),
        .rules = rules, .rule_count = G_N_ELEMENTS(rules), .changes = true,
        .refused = SECCOMP_RET_ERRNO | ENOSYS,
    };

    return wb_filter_enter(&filter);
}

int wb_copy_confine(const char *dir, bool makes, struct wb_copy_confinement *ret, struct wb_error *why)
{
    struct stat st;
    int r = stat(dir, &st) < 0 ? -errno : S_ISDIR(st.st_mode) ? 0 : -ENOTDIR;

    *ret = (struct wb_copy_confinement){.undo_fd = -1, .path = dir};
    if (r == -ENOENT && makes) {
        r = make(dir, ret);
        if (r < 0)
            return wb_error_set(why, r, "cannot be created: %s", g_strerror(-r));
    }
    if (r < 0)
        return wb_error_set(why, r, "%s", g_strerror(-r));
    close_directories();
    wb_sandbox_prepare();
    note_mounts(dir);
    r = leave_root(dir, why);
    if (r < 0)
        return r;
    if (r > 0)
        ret->path = COPY;
    /* Each goes as far as the kernel, or the container, lets it. */
    prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
    r = enter_landlock(ret->path);
    if (r == 0 || wb_sandbox_is_missing(r))
        r = wb_capabilities_keep(KEPT);
    if (r == 0 || wb_sandbox_is_missing(r))
        r = enter_filter();
    return r == 0 || wb_sandbox_is_missing(r)
               ? 0
               : wb_error_set(why, r, "cannot be confined to the copy: %s", g_strerror(-r));
}
