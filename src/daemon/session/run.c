/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "daemon/session/run.h"

#include "daemon/options/config_file.h"
#include "daemon/session/helper.h"
#include "daemon/session/mount.h"
#include "daemon/session/privileges.h"
#include "daemon/session/supervise.h"
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
#include <unistd.h>

int wb_run_complain(const struct wb_problem *why, int status)
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

/* What the child says once it has mounted: where. Nothing: it failed and has told why. */
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
    exit(options->auto_remount && !options->foreground ? wb_supervise(options, fds[1]) : wb_run(options, fds[1]));
}

void wb_run_signals(sigset_t *set)
{
    sigemptyset(set);
    sigaddset(set, SIGINT);
    sigaddset(set, SIGTERM);
    sigaddset(set, SIGHUP);
    sigaddset(set, SIGCHLD);
}

void wb_run_leave_terminal(void)
{
    int null = open("/dev/null", O_RDWR | O_CLOEXEC);

    if (chdir("/") < 0 || null < 0)
        wb_report("cannot leave the terminal: %s", strerror(errno));
    for (int i = 0; null >= 0 && i <= STDERR_FILENO; i++)
        dup2(null, i);
    if (null > STDERR_FILENO)
        close(null);
    wb_report_init(true);
}

static void tell_ready(const struct wb_session *session, int fd)
{
    size_t length = strlen(session->mountpoint);

    if (!session->options->foreground)
        wb_run_leave_terminal();
    if (write(fd, session->mountpoint, length) != (ssize_t)length)
        wb_report("the process that waited for the mount has ended");
    close(fd);
}

/* ---- from beginning to end ------------------------------------------------------------------- */

/* Nobody reads standard error once the terminal has been left. */
static int fail(const struct wb_options *options, const struct wb_problem *why, int ready_fd)
{
    if (ready_fd >= 0 || options->foreground)
        return wb_run_complain(why, WB_RUN_FAILED);
    wb_report("%s", why->text);
    return WB_RUN_FAILED;
}

int wb_run(const struct wb_options *options, int ready_fd)
{
    __attribute__((cleanup(wb_session_freep))) struct wb_session *session = NULL;
    struct wb_problem why = {""};
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
        wb_config_tell_new(session);
    /* Before there are other threads, and before anybody is served. */
    r = session->is_root ? wb_helper_start(session, &why) : 0;
    if (r == 0)
        r = wb_privileges_drop(session, &why);
    if (r < 0) {
        wb_unmount(session);
        return fail(options, &why, ready_fd);
    }
    if (ready_fd >= 0)
        tell_ready(session, ready_fd);
    r = wb_serve(session);
    if (r < 0)
        wb_report("%s: the daemon ends: %s", session->mountpoint, strerror(-r));
    wb_unmount(session);
    return r < 0 ? WB_RUN_FAILED : WB_RUN_DONE;
}
