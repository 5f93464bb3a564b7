/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "daemon/session/mount.h"

#include "base/cleanup.h"
#include "base/io.h"
#include "daemon/control/control.h"
#include "daemon/core/kcache_invalidate.h"
#include "daemon/jobs/compact.h"
#include "daemon/jobs/schedule.h"
#include "daemon/keeper/keeper.h"
#include "daemon/live/ops.h"
#include "daemon/past/moment.h"
#include "daemon/session/helper.h"
#include "daemon/system/covered.h"
#include "daemon/system/detach.h"
#include "daemon/system/mount_limits.h"
#include "daemon/system/report.h"
#include "daemon/system/seccomp.h"
#include "daemon/transport/transport.h"

#include <errno.h>
#include <fcntl.h>
#include <glib.h>
#include <linux/magic.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/vfs.h>
#include <unistd.h>

#define WB_WORKERS 8

/* After a lazy unmount: how long whoever still has files open may go on. */
#define WB_LEAVE_TRIES 40
#define WB_LEAVE_PAUSE_US 50000

/* ---- mounting -------------------------------------------------------------------------------- */

static int check_device(bool is_root, struct wb_error *why)
{
    if (access("/dev/fuse", F_OK) < 0)
        return wb_error_set(why, -ENODEV,
                            "/dev/fuse is missing: the kernel has no FUSE here; try "
                            "`modprobe fuse` as root, or run the container with --device /dev/fuse");
    if (access("/dev/fuse", R_OK | W_OK) == 0)
        return 0;
    return wb_error_set(why, -EACCES, "/dev/fuse: %s; %s", g_strerror(errno),
                        is_root ? "this container may not use FUSE"
                                : "root has to give users access: chmod 666 /dev/fuse");
}

/* Checks for known reasons of a failure, to report them better than mount(2) and fusermount3 do. */
int wb_mount_check(const struct wb_options *options, struct wb_error *why)
{
    g_autofree char *conf = NULL;
    g_autofree char *fusermount = NULL;
    bool is_root = geteuid() == 0;
    int r;

    r = check_device(is_root, why);
    if (r == 0 && options->io_uring)
        r = wb_transport_check(why);
    if (r < 0 || is_root)
        return r;
    if (options->landlock)
        return wb_error_set(why, -EPERM,
                            "landlock is for mounts of root only (other daemons unmount with "
                            "fusermount3, which is set-user-ID and must not be confined)");
    fusermount = g_find_program_in_path("fusermount3");
    if (!fusermount)
        return wb_error_set(why, -ENOENT,
                            "fusermount3 is missing, which mounts for ordinary "
                            "users; install the package fuse3");
    if (!options->allow_other)
        return 0;
    if (!g_file_get_contents("/etc/fuse.conf", &conf, NULL, NULL) ||
        !g_regex_match_simple("^\\s*user_allow_other\\s*$", conf, G_REGEX_MULTILINE, 0))
        return wb_error_set(why, -EPERM,
                            "allow_other is not permitted for ordinary users; root can "
                            "add the line `user_allow_other` to /etc/fuse.conf");
    return 0;
}

static int find_limits(const struct wb_session *session, struct wb_mount_limits *limits)
{
    int r = wb_mount_limits_add(limits, session->src_fd);

    if (r == 0 && session->store)
        r = wb_mount_limits_add(limits, session->store->dir_fd);
    wb_mount_limits_finish(limits, session->options);
    return r;
}

static char *mount_options(const struct wb_session *session, const struct wb_mount_limits *limits)
{
    const struct wb_options *options = session->options;
    GString *text = g_string_new("default_permissions,subtype=wayback");

    if (!strstr(options->fuse->str, "fsname=")) {
        g_string_append(text, ",fsname=");
        g_autofree char *name = wb_moment_label(session);

        for (const char *c = name; *c; c++) {
            if (*c == ',' || *c == '\\')
                g_string_append_c(text, '\\');
            g_string_append_c(text, *c);
        }
    }
    if (options->read_only)
        g_string_append(text, ",ro");
    /* libfuse begins with nosuid,nodev, which fusermount3 lets no ordinary user change. */
    if (session->is_root)
        g_string_append_printf(text, ",%s,%s", limits->nodev ? "nodev" : "dev", limits->nosuid ? "nosuid" : "suid");
    if (limits->noexec)
        g_string_append(text, ",noexec");
    if (options->debug)
        g_string_append(text, ",debug");
    if (options->fuse->len > 0)
        g_string_append_printf(text, ",%s", options->fuse->str);
    return g_string_free(text, FALSE);
}

/* fusermount3 explains itself on standard error: caught, to be part of the one line we print. */
static int catch_stderr(int *saved)
{
    int fd = memfd_create("stderr", MFD_CLOEXEC);

    *saved = -1;
    if (fd < 0)
        return -1;
    fflush(stderr);
    *saved = fcntl(STDERR_FILENO, F_DUPFD_CLOEXEC, 3);
    if (*saved < 0 || dup2(fd, STDERR_FILENO) < 0) {
        close(fd);
        return -1;
    }
    return fd;
}

static void release_stderr(int fd, int saved, char text[256])
{
    ssize_t length = 0;

    text[0] = '\0';
    if (saved >= 0) {
        fflush(stderr);
        dup2(saved, STDERR_FILENO);
        close(saved);
    }
    if (fd < 0)
        return;
    length = pread(fd, text, 255, 0);
    text[length > 0 ? length : 0] = '\0';
    close(fd);
    text[strcspn(text, "\n")] = '\0';
}

/* Requests that are in work at a time, and do not wait in a lane. */
static unsigned worker_limit(const struct wb_session *session)
{
    return WB_WORKERS + (session->options->prunes ? WB_KEEPER_WAITERS : 0);
}

static int mount_at(struct wb_session *session, const char *point, struct wb_error *why)
{
    static const char *const prefixes[] = {"fusermount3: ", "fuse: "};
    const char *reason;
    char said[256];
    int caught, saved, r;

    wb_report_hold_fuse(true);
    caught = catch_stderr(&saved);
    r = fuse_session_mount(session->fuse, point);
    release_stderr(caught, saved, said);
    wb_report_hold_fuse(false);
    if (r == 0)
        return 0;
    reason = said[0] ? said : wb_report_last_of_fuse();
    for (unsigned i = 0; i < G_N_ELEMENTS(prefixes); i++)
        if (g_str_has_prefix(reason, prefixes[i]))
            reason += strlen(prefixes[i]);
    return wb_error_set(why, -EIO, "cannot mount on %s: %s", session->mountpoint, reason);
}

/* Mounts in a directory that no other user can enter, and moves the mount to the place of the dead one. */
static int mount_replacing(struct wb_session *session, struct wb_error *why)
{
    g_autofree char *home = g_strdup_printf("%s/wayback-new-XXXXXX", access("/run", W_OK) == 0 ? "/run" : "/tmp");
    g_autofree char *point = NULL;
    int r;

    if (!mkdtemp(home))
        return wb_error_set(why, -errno, "%s: cannot create a directory for the new mount: %s", home,
                            g_strerror(errno));
    point = g_build_filename(home, "mnt", NULL);
    if (mkdir(point, 0700) < 0)
        r = wb_error_set(why, -errno, "%s: cannot create a directory for the new mount: %s", point, g_strerror(errno));
    else
        r = mount_at(session, point, why);
    if (r == 0) {
        r = wb_covered_replace(&session->covered, point, session->mountpoint, why);
        session->replaced = r == 0;
        wb_detach(point);
    }
    rmdir(point);
    rmdir(home);
    return r;
}

static int mount_session(struct wb_session *session, struct wb_error *why)
{
    char link[32];
    int r;

    if (session->replaces)
        return mount_replacing(session, why);
    /* Only fusermount3 may mount for this user, and it refuses a dead mount as the mount point: SRC is bare until it
     * has mounted, so everything else was done before. */
    wb_detach_if_dead(session->mountpoint);
    /* The directory that was looked up, wherever its name leads to by now. fusermount3 (auto_unmount) has a check of
     * its own, and no descriptor of ours. */
    if (session->point_fd >= 0 && !strstr(session->options->fuse->str, "auto_unmount") &&
        access(wb_fd_path(session->point_fd, link), F_OK) == 0)
        r = mount_at(session, link, why);
    else
        r = mount_at(session, session->mountpoint, why);
    wb_close_fd(&session->point_fd);
    return r;
}

static void leave_signals(sigset_t *set)
{
    sigemptyset(set);
    sigaddset(set, SIGTERM);
    sigaddset(set, SIGINT);
    sigaddset(set, SIGUSR1);
    sigaddset(set, SIGHUP);
    sigaddset(set, WB_SECCOMP_REFUSED);
}

/* From here on a signal waits for whoever takes it (wait_for_signals): once the mount can be seen, a daemon that dies
 * of one leaves it behind, dead. */
static void hold_signals(struct wb_session *session)
{
    sigset_t set;

    leave_signals(&set);
    pthread_sigmask(SIG_BLOCK, &set, NULL);
    signal(SIGPIPE, SIG_IGN);
    /* Where it is ignored nobody can wait for it. From a terminal it means the end, else a look at wayback.conf; a
     * terminal that has hung up is none any more, so it is asked for beforehand. */
    session->threads.on_terminal = session->options->foreground && isatty(STDIN_FILENO);
    signal(SIGHUP, SIG_DFL);
}

/*
 * So that the next to mount waits until this process has ended. Not of a layer of a branch: its mount is detached while
 * the overlay still uses it. Sends no request: the mount is not served yet.
 */
static void claim_store(struct wb_session *session)
{
    struct statx stx;

    if (!session->store || session->store->lock_fd < 0 || session->options->cover ||
        statx(AT_FDCWD, session->mountpoint, AT_NO_AUTOMOUNT | AT_STATX_DONT_SYNC, 0, &stx) < 0)
        return;
    session->store->mount_dev = makedev(stx.stx_dev_major, stx.stx_dev_minor);
    wb_store_claim(session->store);
}

int wb_mount(struct wb_session *session, struct wb_error *why)
{
    g_autofree char *options = NULL;
    char *argv[] = {(char *)"wayback", (char *)"-o", NULL, NULL};
    struct fuse_args args = FUSE_ARGS_INIT(3, argv);
    struct wb_mount_limits limits = {0};
    int r = find_limits(session, &limits);

    if (r < 0)
        return wb_error_set(why, r, "%s: cannot read the mount flags of the tree and its store (%s)", session->source,
                            g_strerror(-r));
    options = mount_options(session, &limits);
    argv[2] = options;
    session->fuse = fuse_session_new(&args, &wb_fuse_ops, sizeof(wb_fuse_ops), session);
    fuse_opt_free_args(&args);
    if (!session->fuse)
        return wb_error_set(why, -EINVAL, "libfuse refuses the options \"%s\"", options);
    hold_signals(session);
    r = mount_session(session, why);
    if (r == 0)
        r = wb_transport_begin(session, worker_limit(session), why);
    if (r < 0)
        wb_unmount(session);
    else
        claim_store(session);
    return r;
}

/*
 * libfuse executes umount(8) where libmount keeps a table, and after a failed setuid(2) its child goes on as a second
 * daemon; both calls are refused by now (seccomp.h).
 */
static void unmount_as_root(struct wb_session *session)
{
    struct pollfd device = {.fd = fuse_session_fd(session->fuse)};
    _cleanup_close_ int null = -1;

    /* It was not mounted, or not here (mount_replacing), or is unmounted by now: what is there is somebody else's. */
    if (device.fd < 0 || session->replaces || (poll(&device, 1, 0) == 1 && device.revents & (POLLERR | POLLNVAL)))
        return;
    /* Nobody serves any more: what the kernel still has to write must fail, and not wait for us. */
    null = open("/dev/null", O_RDWR | O_CLOEXEC);
    if (null >= 0)
        dup3(null, device.fd, O_CLOEXEC);
    if (session->helper)
        wb_helper_ask(session->helper, WB_HELPER_DETACH);
    else
        wb_detach(session->mountpoint);
}

void wb_unmount(struct wb_session *session)
{
    if (!session->fuse)
        return;
    /* libfuse knows the path where it mounted, and nothing is there any more. */
    if (session->replaced && session->helper)
        wb_helper_ask(session->helper, WB_HELPER_DETACH_REPLACED);
    else if (session->replaced)
        wb_covered_detach(&session->covered, session->mountpoint);
    else if (session->is_root)
        unmount_as_root(session);
    else
        fuse_session_unmount(session->fuse);
    wb_transport_stop(session);
    fuse_session_destroy(session->fuse);
    session->fuse = NULL;
    wb_transport_end(session);
}

int wb_mount_answers(const char *mountpoint)
{
    struct statfs fs;
    struct stat st;

    if (statfs(mountpoint, &fs) < 0 || stat(mountpoint, &st) < 0)
        return -errno;
    return fs.f_type == FUSE_SUPER_MAGIC ? 0 : -ENOTCONN;
}

/* ---- leaving --------------------------------------------------------------------------------- */

/*
 * Pages of shared mappings that are dirty still have to come to us: so the mount goes first,
 * while it is served, and the daemon after it. Without anyone using it the kernel writes
 * everything back and closes the connection; others get a moment.
 */
static void leave(struct wb_session *session)
{
    int r = session->helper ? wb_helper_ask(session->helper, WB_HELPER_LEAVE) : wb_helper_leave(session);

    if (r == 0) {
        for (int i = 0; i < WB_LEAVE_TRIES && !fuse_session_exited(session->fuse); i++)
            g_usleep(WB_LEAVE_PAUSE_US);
    }
    fuse_session_exit(session->fuse);
}

static void *wait_for_signals(void *data)
{
    struct wb_session *session = data;
    sigset_t set;
    int signal;

    leave_signals(&set);
    while (sigwait(&set, &signal) == 0) {
        if (signal == WB_SECCOMP_REFUSED)
            wb_seccomp_report();
        else if (signal == SIGHUP && !session->threads.on_terminal)
            wb_schedule_reload(session);
        else
            break;
    }
    /* SIGUSR1: the file system is unmounted, there is nothing left to wait for. */
    if (signal != SIGUSR1)
        leave(session);
    return NULL;
}

static int start_signals(struct wb_session *session)
{
    int r = pthread_create(&session->threads.signals, NULL, wait_for_signals, session);
    if (r != 0)
        return -r;
    session->threads.signals_run = true;
    return 0;
}

static void stop_signals(struct wb_session *session)
{
    if (!session->threads.signals_run)
        return;
    pthread_kill(session->threads.signals, SIGUSR1);
    pthread_join(session->threads.signals, NULL);
    session->threads.signals_run = false;
}

static int serve_requests(struct wb_session *session)
{
    struct fuse_loop_config *config = fuse_loop_cfg_create();
    int r;

    if (config) {
        fuse_loop_cfg_set_max_threads(config, worker_limit(session));
        /* A queue of its own for every worker, where the device may be opened once more. */
        fuse_loop_cfg_set_clone_fd(config, access("/dev/fuse", R_OK | W_OK) == 0);
    }
    r = fuse_session_loop_mt(session->fuse, config);
    wb_transport_stop(session);
    if (config)
        fuse_loop_cfg_destroy(config);
    /* An unmount while a worker has a request in hand that it has not begun to read: for the kernel that one was
     * aborted, and libfuse knows only ENODEV as the end. */
    return r < 0 && r != -ECONNABORTED ? r : 0;
}

int wb_serve(struct wb_session *session)
{
    int r;

    r = wb_session_start_background(session);
    /* Before the schedule, which passes the policy to it. */
    if (r == 0)
        r = wb_keeper_start(session);
    if (r == 0)
        r = wb_schedule_start(session);
    if (r == 0)
        r = wb_compact_start(session);
    /* Last: a signal that is waiting already makes it ask the mount, which only the loop answers. */
    if (r == 0)
        r = start_signals(session);
    if (r == 0) {
        r = serve_requests(session);
        wb_control_wait(session);
        wb_kcache_invalidate_wait(session);
        wb_transport_close(session);
    }
    stop_signals(session);
    wb_schedule_stop(session);
    wb_keeper_stop(session);
    return r;
}
