/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "daemon/session/daemonize.h"

#include "daemon/options/config_file.h"
#include "daemon/options/options.h"
#include "daemon/session/helper.h"
#include "daemon/session/mount.h"
#include "daemon/session/privileges.h"
#include "daemon/system/covered.h"
#include "daemon/system/detach.h"
#include "daemon/system/report.h"
#include "wayback/quote.h"
#include <errno.h>
#include <fcntl.h>
#include <glib.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static int supervise(const struct wb_options *options, int ready_fd);

int wb_run_complain(const struct wb_error *why, int status)
{
    fprintf(stderr, "wayback: %s\n", why->text);
    return status;
}

/* ---- to the background ----------------------------------------------------------------------- */

/*
 * A shell that mounts over its own directory stays in the one below the mount: what it changes there by relative paths
 * nobody records. Only the shell itself can go elsewhere.
 */
static void warn_of_covered_directory(const char *mountpoint)
{
    g_autofree char *path = g_get_current_dir();
    g_autofree char *shown = wb_quote_text(mountpoint);
    struct stat here, there;

    if (stat(".", &here) == 0 && stat(path, &there) == 0 && here.st_dev != there.st_dev)
        fprintf(stderr, "wayback: the current directory is below the mount %s, where nothing is recorded; run `cd .` "
                "to enter the mount\n", shown);
}

/* Reads the mount point, which the child writes once it has mounted. Nothing: it failed and has reported why. */
int wb_run_wait(int fd)
{
    char mountpoint[PATH_MAX + 1];
    g_autofree char *shown = NULL;
    size_t length = 0;
    ssize_t n;
    int r;

    while (length < PATH_MAX && (n = read(fd, mountpoint + length, PATH_MAX - length)) != 0) {
        if (n < 0 && errno != EINTR)
            break;
        if (n > 0)
            length += (size_t)n;
    }
    close(fd);
    mountpoint[length] = '\0';
    if (length == 0)
        return -1;
    shown = wb_quote_text(mountpoint);
    r = wb_mount_answers(mountpoint);
    if (r < 0)
        fprintf(stderr, "wayback: %s was mounted, but the daemon does not answer: %s; see the system log\n", shown,
                strerror(-r));
    else
        warn_of_covered_directory(mountpoint);
    return r < 0 ? -1 : 0;
}

pid_t wb_run_start(const struct wb_options *options, int *ret_fd)
{
    int fds[2];
    pid_t pid;

    if (pipe2(fds, O_CLOEXEC) < 0)
        return -errno;
    pid = fork();
    if (pid != 0) {
        int error = errno;

        close(fds[1]);
        if (pid < 0)
            close(fds[0]);
        *ret_fd = fds[0];
        return pid < 0 ? -error : pid;
    }
    close(fds[0]);
    if (!options->foreground) {
        setsid();
        signal(SIGHUP, SIG_IGN);
    }
    exit(options->auto_remount && !options->foreground ? supervise(options, fds[1]) : wb_run(options, fds[1]));
}

void wb_run_signals(sigset_t *set)
{
    sigemptyset(set);
    sigaddset(set, SIGINT);
    sigaddset(set, SIGTERM);
    sigaddset(set, SIGHUP);
    sigaddset(set, SIGCHLD);
}

/* Standard input and output lead nowhere from now on, errors to the system log. */
static void run_leave_terminal(void)
{
    int null = open("/dev/null", O_RDWR | O_CLOEXEC);

    if (chdir("/") < 0 || null < 0)
        wb_log_msg("cannot leave the terminal: %s", strerror(errno));
    for (int i = 0; null >= 0 && i <= STDERR_FILENO; i++)
        dup2(null, i);
    if (null > STDERR_FILENO)
        close(null);
    wb_log_msg_init(true);
}

static void report_ready(const struct wb_session *session, int fd)
{
    size_t length = strlen(session->mountpoint);

    if (!session->options->foreground)
        run_leave_terminal();
    if (write(fd, session->mountpoint, length) != (ssize_t)length)
        wb_log_msg("the process that waited for the mount has ended");
    close(fd);
}

/* ---- from beginning to end ------------------------------------------------------------------- */

/* Nobody reads standard error once the terminal has been left. */
static int fail(const struct wb_options *options, const struct wb_error *why, int ready_fd)
{
    if (ready_fd >= 0 || options->foreground)
        return wb_run_complain(why, WB_RUN_FAILED);
    wb_log_msg("%s", why->text);
    return WB_RUN_FAILED;
}

int wb_run_check(const struct wb_options *options)
{
    struct wb_session *session = NULL;
    struct wb_error why = {""};
    int r = wb_mount_check(options, &why);

    if (r == 0)
        r = wb_session_open(&session, options, &why);
    return r < 0 ? wb_run_complain(&why, WB_RUN_FAILED) : WB_RUN_DONE;
}

int wb_run(const struct wb_options *options, int ready_fd)
{
    __attribute__((cleanup(wb_session_freep))) struct wb_session *session = NULL;
    struct wb_error why = {""};
    int r;

    r = wb_mount_check(options, &why);
    if (r == 0)
        r = wb_session_open(&session, options, &why);
    if (r < 0)
        return fail(options, &why, ready_fd);
    r = wb_mount(session, &why);
    if (r < 0)
        return fail(options, &why, ready_fd);
    if (session->recording && session->store->is_new && !options->plain)
        wb_config_report_new(session);
    /* Before there are other threads, and before anybody is served. */
    r = session->is_root ? wb_helper_start(session, &why) : 0;
    if (r == 0)
        r = wb_privileges_drop(session, &why);
    if (r < 0) {
        wb_unmount(session);
        return fail(options, &why, ready_fd);
    }
    if (ready_fd >= 0)
        report_ready(session, ready_fd);
    r = wb_serve(session);
    if (r < 0)
        wb_log_msg("%s: the daemon ends: %s", session->mountpoint, strerror(-r));
    wb_unmount(session);
    return r < 0 ? WB_RUN_FAILED : WB_RUN_DONE;
}

/*
 * A daemon that dies leaves its mount behind, and every access to it fails (ENOTCONN) until somebody mounts again.
 * If no other program does that (systemd does, see wayback@.service), this process does: it is small, touches no file
 * of the tree and outlives the daemon.
 *
 * It mounts again only if there is a dead mount of ours: a daemon that was asked to end has unmounted before, and if
 * somebody has removed the dead mount, that was intended.
 */

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
            run_leave_terminal();
        }
        ready_fd = -1;
        now.new_history = false; /* it has begun */
        if (pid < 0) {
            wb_log_msg("%s: cannot start a process for the daemon: %s", options->mountpoint, strerror(-pid));
            return WB_RUN_FAILED;
        }
        status = wait_for(pid);
        if ((WIFEXITED(status) && WEXITSTATUS(status) == WB_RUN_DONE) || !wb_detach_is_dead(options->mountpoint))
            return WIFEXITED(status) ? WEXITSTATUS(status) : WB_RUN_FAILED;
        deaths = seconds_now() - begun < WB_YOUNG_SECONDS ? deaths + 1 : 1;
        if (deaths == WB_YOUNG_DEATHS) {
            wb_log_msg("%s: the daemon died %u times in a row, the last time of signal %d; not mounted again; unmount "
                       "it, and mount it manually",
                       options->mountpoint, deaths, WIFSIGNALED(status) ? WTERMSIG(status) : 0);
            return WB_RUN_FAILED;
        }
        wb_log_msg("%s: the daemon died of signal %d; mounting again", options->mountpoint,
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

/*
 * The daemon in a child of this process, which leaves the terminal and waits. `ready_fd`: where the first daemon says
 * that it has mounted. Returns the exit status once the file system is unmounted, or cannot be kept mounted.
 */
static int supervise(const struct wb_options *options, int ready_fd)
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
