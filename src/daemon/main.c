/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * wayback: mounts a tree with its history. In the background, the process that was called
 * returns once the mount answers; whatever fails before is one line and exit status 1.
 */
#include "daemon/config_file.h"
#include "daemon/mount.h"
#include "daemon/report.h"

#include "base/cleanup.h"
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

enum { EXIT_DONE = 0, EXIT_FAILED = 1, EXIT_USAGE = 2 };

static int complain(const struct wb_problem *why, int status)
{
    fprintf(stderr, "wayback: %s\n", why->text);
    return status;
}

/* Open files of users cost descriptors; everything else is bounded. */
static void raise_limits(void)
{
    struct rlimit limit;

    if (getrlimit(RLIMIT_NOFILE, &limit) == 0 && limit.rlim_cur < limit.rlim_max) {
        limit.rlim_cur = limit.rlim_max;
        setrlimit(RLIMIT_NOFILE, &limit);
    }
}

/* ---- to the background ----------------------------------------------------------------------- */

/* What the child says once it has mounted: where. Nothing: it failed and has told why. */
static int wait_for_child(int fd)
{
    char mountpoint[PATH_MAX + 1];
    size_t length = 0;
    ssize_t n;
    int r;

    while (length < PATH_MAX && (n = read(fd, mountpoint + length, PATH_MAX - length)) != 0) {
        if (n < 0 && errno != EINTR)
            break;
        if (n > 0)
            length += (size_t)n;
    }
    mountpoint[length] = '\0';
    if (length == 0)
        return EXIT_FAILED;
    r = wb_mount_answers(mountpoint);
    if (r < 0) {
        fprintf(stderr, "wayback: %s was mounted but does not answer: %s; the system log may tell "
                "why\n", mountpoint, strerror(-r));
        return EXIT_FAILED;
    }
    return EXIT_DONE;
}

/* In the child: -1 to go on, with *ret_fd to speak to the parent through. In the parent: its exit status. */
static int go_background(int *ret_fd)
{
    int fds[2];
    pid_t pid;

    if (pipe2(fds, O_CLOEXEC) < 0 || (pid = fork()) < 0) {
        fprintf(stderr, "wayback: cannot start in the background: %s\n", strerror(errno));
        return EXIT_FAILED;
    }
    if (pid > 0) {
        close(fds[1]);
        return wait_for_child(fds[0]);
    }
    close(fds[0]);
    setsid();
    signal(SIGHUP, SIG_IGN);
    *ret_fd = fds[1];
    return -1;
}

static void leave_terminal(const struct wb_session *session, int fd)
{
    int null = open("/dev/null", O_RDWR | O_CLOEXEC);
    size_t length = strlen(session->mountpoint);

    if (chdir("/") < 0 || null < 0)
        wb_report("cannot leave the terminal: %s", strerror(errno));
    for (int i = 0; null >= 0 && i <= STDERR_FILENO; i++)
        dup2(null, i);
    if (null > STDERR_FILENO)
        close(null);
    wb_report_init(true);
    if (write(fd, session->mountpoint, length) != (ssize_t)length)
        wb_report("nobody waits for the mount");
    close(fd);
}

/* ---- main ------------------------------------------------------------------------------------ */

static int run(const struct wb_options *options, int parent_fd)
{
    __attribute__((cleanup(wb_session_freep))) struct wb_session *session = NULL;
    struct wb_problem why = {""};
    int r;

    r = wb_mount_check(options, &why);
    if (r == 0)
        r = wb_session_open(&session, options, &why);
    if (r < 0)
        return complain(&why, EXIT_FAILED);
    r = wb_mount(session, &why);
    if (r < 0)
        return complain(&why, EXIT_FAILED);
    if (parent_fd >= 0)
        leave_terminal(session, parent_fd);
    r = wb_serve(session);
    if (r < 0)
        wb_report("%s: served no longer: %s", session->mountpoint, strerror(-r));
    wb_unmount(session);
    return r < 0 ? EXIT_FAILED : EXIT_DONE;
}

int main(int argc, char **argv)
{
    struct wb_options options;
    struct wb_problem why = {""};
    int parent_fd = -1, status;

    if (wb_options_parse(&options, argc, argv, &why) < 0) {
        wb_options_deinit(&options);
        return complain(&why, EXIT_USAGE);
    }
    if (options.help) {
        wb_options_print_help();
        status = EXIT_DONE;
    } else if (options.version) {
        printf("wayback %s (libfuse %s)\n", WAYBACK_VERSION, fuse_pkgversion());
        status = EXIT_DONE;
    } else if (options.check_config) {
        status = wb_config_check(&options);
    } else if (options.config_path) {
        status = wb_config_path(&options);
    } else {
        raise_limits();
        umask(077);
        wb_report_init(false);
        status = options.foreground ? -1 : go_background(&parent_fd);
        if (status < 0)
            status = run(&options, parent_fd);
    }
    wb_options_deinit(&options);
    return status;
}
