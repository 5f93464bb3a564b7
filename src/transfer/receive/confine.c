/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * A process that reads a stream of others, and can reach nothing but the copy that the stream is for.
 *
 * Whoever makes a copy carries out what the stream says, and so decodes it: a process that only checked it before would
 * hand on the same bytes. Therefore all of it happens in a process to which nothing is left but the copy.
 */
#include "wayback/copy.h"

#include "base/cleanup.h"
#include "base/enclose.h"
#include "base/sandbox/capabilities.h"
#include "base/sandbox/filter.h"
#include "base/sandbox/landlock.h"
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

/* By number: C libraries do not all know it. */
#define NEW_close_range 436

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

/* What Landlock leaves open, modes and owners of other files, has no path there: root's alone. */
static int leave_root(const char *dir, struct wb_error *why)
{
    _cleanup_close_ int fd = open(dir, O_PATH | O_DIRECTORY | O_CLOEXEC);
    const struct wb_enclosed copy = {fd, COPY};
    int r = fd < 0 ? -errno : wb_enclose(&copy, 1, false);

    return r < 0 ? wb_error_set(why, r, "cannot be confined to the copy: %s", g_strerror(-r)) : r;
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
    const struct wb_filter_list lists[] = {wb_filter_basic, wb_filter_changes, {more, G_N_ELEMENTS(more)}};
    const struct wb_filter filter = {
        .lists = lists, .list_count = G_N_ELEMENTS(lists),
        .rules = rules, .rule_count = G_N_ELEMENTS(rules), .refused = SECCOMP_RET_ERRNO | ENOSYS,
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
    wb_enclose_close_directories(NULL, 0);
    r = leave_root(dir, why);
    if (r < 0)
        return r;
    if (r > 0)
        ret->path = COPY;
    /* Whether all that is possible here: each goes as far as the kernel, or the container, lets it. */
    prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
    r = enter_landlock(ret->path);
    if (r == 0 || r == -EOPNOTSUPP)
        r = wb_capabilities_keep(KEPT);
    if (r == 0)
        r = enter_filter();
    return r == 0 || r == -EOPNOTSUPP || r == -EPERM
               ? 0
               : wb_error_set(why, r, "cannot be confined to the copy: %s", g_strerror(-r));
}
