/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * A daemon that dies leaves its mount behind, and every access to it fails (ENOTCONN) until somebody mounts again.
 * Whoever has nobody for that (systemd does it, see wayback@.service) has this process: it is small, touches no file
 * of the tree and outlives the daemon.
 *
 * It mounts again where a dead mount of ours is, and nowhere else: a daemon that was told to go has unmounted before,
 * and where somebody has taken the dead mount away, that was meant.
 */
#include "daemon/session/supervise.h"

#include "daemon/session/run.h"
#include "daemon/system/covered.h"
#include "daemon/system/detach.h"
#include "daemon/system/report.h"
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

/* So often in a row a daemon may die young: then something is wrong that no new one mends. */
#define WB_YOUNG_SECONDS 60
#define WB_YOUNG_DEATHS 6

static pid_t start(const struct wb_options *options, int ready_fd, const sigset_t *mask)
{
    pid_t pid = fork();

    if (pid == 0) {
        sigprocmask(SIG_SETMASK, mask, NULL);
        exit(wb_run(options, ready_fd));
    }
    return pid < 0 ? -errno : pid;
}

/* Until the daemon has ended; signals are meant for it. Its status, as of waitpid(2). */
static int wait_for(pid_t pid)
{
    sigset_t set;
    int status, number;

    wb_run_signals(&set);
    for (;;) {
        pid_t ended = waitpid(pid, &status, WNOHANG);

        if (ended == pid)
            return status;
        if (ended < 0)
            return 0;
        if (sigwait(&set, &number) == 0 && number != SIGCHLD)
            kill(pid, number);
    }
}

static int64_t seconds_now(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec;
}

/* The first time at once, then after 1, 2, 4 ... seconds; a signal that asks to go ends it. */
static bool pause_before(unsigned deaths)
{
    struct timespec pause = {.tv_sec = deaths > 1 ? 1 << (deaths - 2) : 0};
    sigset_t set;

    wb_run_signals(&set);
    sigdelset(&set, SIGCHLD);
    sigdelset(&set, SIGHUP);
    return sigtimedwait(&set, NULL, &pause) < 0;
}

static int keep_mounted(const struct wb_options *options, int ready_fd, const sigset_t *mask)
{
    struct wb_options now = *options;
    unsigned deaths = 0;

    for (;;) {
        int64_t begun = seconds_now();
        pid_t pid = start(&now, ready_fd, mask);
        int status;

        if (ready_fd >= 0) {
            close(ready_fd);
            wb_run_leave_terminal();
        }
        ready_fd = -1;
        now.new_history = false; /* it has begun */
        if (pid < 0) {
            wb_report("%s: cannot start a process for the daemon: %s", options->mountpoint, strerror(-pid));
            return WB_RUN_FAILED;
        }
        status = wait_for(pid);
        if ((WIFEXITED(status) && WEXITSTATUS(status) == WB_RUN_DONE) || !wb_detach_is_dead(options->mountpoint))
            return WIFEXITED(status) ? WEXITSTATUS(status) : WB_RUN_FAILED;
        deaths = seconds_now() - begun < WB_YOUNG_SECONDS ? deaths + 1 : 1;
        if (deaths == WB_YOUNG_DEATHS) {
            wb_report("%s: the daemon died %u times in a row, the last time of signal %d; not mounted again; unmount "
                      "it, and mount it manually", options->mountpoint, deaths,
                      WIFSIGNALED(status) ? WTERMSIG(status) : 0);
            return WB_RUN_FAILED;
        }
        wb_report("%s: the daemon died of signal %d; mounting again", options->mountpoint,
                  WIFSIGNALED(status) ? WTERMSIG(status) : 0);
        if (!pause_before(deaths))
            return WB_RUN_FAILED;
    }
}

/* `path` as it is meant here, whatever directory we are in later. */
static void make_absolute(char **path)
{
    char *absolute = *path ? g_canonicalize_filename(*path, NULL) : NULL;

    g_free(*path);
    *path = absolute;
}

/*
 * SRC before a mount covers it. 0: not opened; the daemon reports why, or finds SRC below a dead mount. A moment (at=)
 * is found by its path, through the mount of the present.
 */
static int keep_source(const struct wb_options *options)
{
    g_autofree char *dead = wb_detach_find_dead(options->mountpoint);
    int fd, kept;

    if (options->at)
        return 0;
    if (dead && strcmp(options->source, options->mountpoint) == 0)
        fd = wb_covered_open(dead);
    else
        fd = open(options->source, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0)
        return 0;
    kept = fcntl(fd, F_DUPFD_CLOEXEC, STDERR_FILENO + 1);
    close(fd);
    return kept < 0 ? 0 : kept;
}

int wb_supervise(const struct wb_options *options, int ready_fd)
{
    struct wb_options mine = *options;
    sigset_t set, mask;
    int status;

    mine.source = g_strdup(options->source);
    mine.mountpoint = g_strdup(options->mountpoint);
    mine.store = g_strdup(options->store);
    make_absolute(&mine.source);
    make_absolute(&mine.mountpoint);
    make_absolute(&mine.store);
    mine.kept_source = keep_source(&mine);
    wb_run_signals(&set);
    sigprocmask(SIG_BLOCK, &set, &mask);
    status = keep_mounted(&mine, ready_fd, &mask);
    if (mine.kept_source > 0)
        close(mine.kept_source);
    g_free(mine.source);
    g_free(mine.mountpoint);
    g_free(mine.store);
    return status;
}
