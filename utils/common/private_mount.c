/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "common/cli.h"
#include "client/fd.h"
#include "common/mount.h"
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>

/* How long a mount may take (recovery after a crash is part of it), and an unmount. */
#define MOUNT_WAIT_MS 60000
#define UNMOUNT_WAIT_MS 20000
#define LOCK_WAIT_MS 3000
#define STEP_MS 5

struct wb_private {
    char *point;
    pid_t daemon;
    int root_fd; /* ours to close before unmounting */
    int log_fd; /* what the daemon says on stderr; a memfd, so that it never blocks */
};

/* A handful at most: one for each unmounted tree named on one command line. */
#define PRIVATE_MAX 64
static struct wb_private *all[PRIVATE_MAX];
static volatile sig_atomic_t all_count;

/* Async-signal-safe: the daemon unmounts and keeps everything when it gets SIGTERM. */
static void last_words(void)
{
    for (int i = 0; i < all_count; i++) {
        kill(all[i]->daemon, SIGTERM);
        while (waitpid(all[i]->daemon, NULL, 0) < 0 && errno == EINTR)
            ;
        rmdir(all[i]->point);
    }
}

char *wb_private_daemon(void)
{
    const char *set = g_getenv("WAYBACK_DAEMON");
    g_autofree char *self = g_file_read_link("/proc/self/exe", NULL);
    g_autofree char *here = self ? g_path_get_dirname(self) : NULL;
    /* Installed beside us, or in the build tree. */
    static const char *const places[] = {"wayback", "../../src/daemon/wayback"};

    if (set && *set)
        return g_strdup(set);
    for (unsigned i = 0; here && i < G_N_ELEMENTS(places); i++) {
        g_autofree char *path = g_build_filename(here, places[i], NULL);

        if (g_file_test(path, G_FILE_TEST_IS_EXECUTABLE) && !g_file_test(path, G_FILE_TEST_IS_DIR))
            return g_steal_pointer(&path);
    }
    return g_find_program_in_path("wayback");
}

/* What the daemon last said, as one line. */
static char *daemon_said(const struct wb_private *private)
{
    char text[2048];
    ssize_t length;
    off_t end = lseek(private->log_fd, 0, SEEK_END);
    off_t from = end > (off_t)sizeof(text) - 1 ? end - ((off_t)sizeof(text) - 1) : 0;
    char *line;

    length = wb_fd_read(private->log_fd, text, sizeof(text) - 1, from);
    text[length > 0 ? length : 0] = '\0';
    g_strchomp(text);
    line = strrchr(text, '\n');
    line = line ? line + 1 : text;
    return g_strdup(g_str_has_prefix(line, "wayback: ") ? line + strlen("wayback: ") : line);
}

/*
 * A daemon that was just unmounted keeps the store's lock until all is written: wait for that.
 * If it remains locked, the daemon that we start reports it.
 */
static void wait_for_lock(const char *source)
{
    const char *store = wb_cli_store();
    g_autofree char *path = store ? g_build_filename(store, "lock", NULL)
                                  : g_build_filename(source, ".wayback", "lock", NULL);
    _cleanup_fd_ int fd = open(path, O_RDONLY | O_NOFOLLOW | O_CLOEXEC);

    for (int waited = 0; fd >= 0 && waited < LOCK_WAIT_MS && !wb_cli_interrupted(); waited += STEP_MS) {
        if (flock(fd, LOCK_EX | LOCK_NB) == 0 || errno != EWOULDBLOCK)
            break;
        g_usleep(STEP_MS * 1000);
    }
    /* Closing gives it up again. */
}

/* "store=DIR" as one option, commas and all; NULL: the history is in the tree. */
static char *store_argument(void)
{
    const char *store = wb_cli_store();
    GString *text;

    if (!store)
        return NULL;
    text = g_string_new("store=");
    for (; *store; store++) {
        if (*store == ',' || *store == '\\')
            g_string_append_c(text, '\\');
        g_string_append_c(text, *store);
    }
    return g_string_free(text, FALSE);
}

static void run_daemon(const char *daemon, const char *source, const char *point, int log_fd,
                       enum wb_mount_need need)
{
    g_autofree char *store = store_argument();
    const char *arguments[10];
    int null_fd = open("/dev/null", O_RDWR);
    int n = 0;

    /* The terminal's Ctrl-C is for the tool, which unmounts when it is done; if the tool is
     * killed, the daemon unmounts by itself. */
    setpgid(0, 0);
    prctl(PR_SET_PDEATHSIG, SIGTERM);
    signal(SIGPIPE, SIG_DFL);
    signal(SIGINT, SIG_DFL);
    signal(SIGTERM, SIG_DFL);
    signal(SIGHUP, SIG_DFL);
    dup2(null_fd, 0);
    dup2(null_fd, 1);
    dup2(log_fd, 2);
    arguments[n++] = daemon;
    arguments[n++] = "-f";
    if (need == WB_MOUNT_READ) {
        arguments[n++] = "-o";
        arguments[n++] = "ro";
    }
    if (store) {
        arguments[n++] = "-o";
        arguments[n++] = store;
    }
    arguments[n++] = source;
    arguments[n++] = point;
    arguments[n] = NULL;
    execv(daemon, (char *const *)arguments);
    fprintf(stderr, "%s: %s\n", daemon, strerror(errno));
    _exit(127);
}

static bool answers(struct wb_private *private)
{
    _cleanup_fd_ int fd = open(private->point, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    struct wb_control_hello hello;

    if (fd < 0 || wb_request_hello(fd, &hello) < 0)
        return false;
    private->root_fd = wb_fd_steal(&fd);
    return true;
}

/* 0, or -1: the daemon ended, or does not answer. */
static int wait_for_mount(struct wb_private *private)
{
    for (int waited = 0; waited < MOUNT_WAIT_MS && !wb_cli_interrupted(); waited += STEP_MS) {
        if (answers(private))
            return 0;
        if (waitpid(private->daemon, NULL, WNOHANG) == private->daemon) {
            private->daemon = 0;
            return -1;
        }
        g_usleep(STEP_MS * 1000);
    }
    return -1;
}

static void spawn_unmount(const char *point)
{
    const char *const arguments[] = {"fusermount3", "-u", "-z", "-q", "--", point, NULL};

    g_spawn_sync(NULL, (char **)arguments, NULL,
                 G_SPAWN_SEARCH_PATH | G_SPAWN_STDOUT_TO_DEV_NULL | G_SPAWN_STDERR_TO_DEV_NULL, NULL, NULL,
                 NULL, NULL, NULL, NULL);
}

static void take_down(struct wb_private *private)
{
    if (private->root_fd >= 0)
        close(private->root_fd);
    if (private->daemon > 0) {
        int status, waited = 0;

        if (umount2(private->point, 0) < 0 && errno != EINVAL)
            spawn_unmount(private->point);
        while (waitpid(private->daemon, &status, WNOHANG) == 0) {
            if (waited == UNMOUNT_WAIT_MS / 2)
                kill(private->daemon, SIGTERM);
            if (waited >= UNMOUNT_WAIT_MS) {
                wb_cli_warn(private->point, "the private mount could not be unmounted; unmount it with "
                                            "fusermount3 -u");
                break;
            }
            g_usleep(STEP_MS * 1000);
            waited += STEP_MS;
        }
    }
    rmdir(private->point);
    if (private->log_fd >= 0)
        close(private->log_fd);
    g_free(private->point);
    g_free(private);
}

void wb_private_unmount_all(void)
{
    while (all_count > 0) {
        struct wb_private *private = all[all_count - 1];

        all_count--;
        take_down(private);
    }
}

const char *wb_private_point(const struct wb_private *private)
{
    return private->point;
}

int wb_private_root(const struct wb_private *private)
{
    return private->root_fd;
}

/* Whether nobody else can put a link in the place of a mount point there: `su` keeps the variable of another user. */
static bool is_own(const char *directory)
{
    struct stat st;

    return directory && lstat(directory, &st) == 0 && S_ISDIR(st.st_mode) && st.st_uid == geteuid() &&
           (st.st_mode & (S_IWGRP | S_IWOTH)) == 0 && access(directory, W_OK) == 0;
}

struct wb_private *wb_private_mount(const char *path, const char *source, enum wb_mount_need need)
{
    const char *runtime = g_getenv("XDG_RUNTIME_DIR");
    g_autofree char *daemon = wb_private_daemon();
    struct wb_private *private;
    g_autofree char *point = NULL;
    g_autofree char *said = NULL;

    if (!daemon) {
        wb_cli_fail(path, "%s is not mounted, and the program 'wayback' was not found to mount it; add it to PATH "
                          "or set WAYBACK_DAEMON", source);
        return NULL;
    }
    point = g_build_filename(is_own(runtime) ? runtime : "/tmp", "wayback-XXXXXX", NULL);
    if (all_count == PRIVATE_MAX || !mkdtemp(point)) {
        wb_cli_fail(path, "cannot create a directory to mount %s at: %s", source, wb_errno_text(errno));
        return NULL;
    }
    private = g_new0(struct wb_private, 1);
    private->point = g_steal_pointer(&point);
    if (need == WB_MOUNT_WRITE)
        wait_for_lock(source);
    private->root_fd = -1;
    private->log_fd = memfd_create("wayback-stderr", MFD_CLOEXEC);
    private->daemon = fork();
    if (private->daemon == 0)
        run_daemon(daemon, source, private->point, private->log_fd, need);
    if (all_count == 0) {
        atexit(wb_private_unmount_all);
        wb_cli_last_words(last_words);
    }
    all[all_count] = private;
    all_count++;
    if (private->daemon > 0 && wait_for_mount(private) == 0)
        return private;
    said = daemon_said(private);
    wb_cli_fail(path, "%s is not mounted and could not be mounted: %s", source,
                wb_cli_interrupted() ? "interrupted" : *said ? said : "the daemon does not answer");
    return NULL;
}
