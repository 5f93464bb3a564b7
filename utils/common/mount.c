/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "common/mount.h"
#include "common/cli.h"
#include "client/fd.h"
#include "client/path.h"
#include "common/text.h"
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
#include "wayback/server.h"
#include "wayback/tree.h"

/* ---- private mounts --------------------------------------------------------------------------------------- */

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

/* Whether nobody else can put a link in the place of a mount point there: `su` keeps the variable of another user. */
static bool is_own(const char *directory)
{
    struct stat st;

    return directory && lstat(directory, &st) == 0 && S_ISDIR(st.st_mode) && st.st_uid == geteuid() &&
           (st.st_mode & (S_IWGRP | S_IWOTH)) == 0 && access(directory, W_OK) == 0;
}

/* Mounts `source` in a directory of our own; NULL after an error line about `path`. */
static struct wb_private *start_private(const char *path, const char *source, enum wb_mount_need need)
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

/* ---- finding the mount ------------------------------------------------------------------------------------- */

static GPtrArray *mounts; /* struct wb_mount: each is found once */

static struct wb_mount *remember(struct wb_mount *mount, struct wb_private *private)
{
    if (!mount)
        return NULL;
    mount->private = private;
    if (!mounts)
        mounts = g_ptr_array_new();
    g_ptr_array_add(mounts, mount);
    return mount;
}

static struct wb_mount *known_mount(const char *path)
{
    struct wb_mount *best = NULL;

    for (guint i = 0; mounts && i < mounts->len; i++) {
        struct wb_mount *mount = mounts->pdata[i];

        if (wb_path_below(path, mount->private ? mount->hello.source : mount->point, NULL) &&
            (!best || strlen(mount->point) >= strlen(best->point)))
            best = mount;
    }
    return best;
}

/* Whether the server of the mount of `fd` may say that its tree is `source`: any user can mount one that says so. */
static bool may_stand_for(int fd, const char *source)
{
    _cleanup_fd_ int tree_fd = open(source, O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    uid_t user;

    return wb_server_user(fd, &user) == 0 && wb_server_may_name(user, tree_fd);
}

struct wb_mount *wb_mount_of_source(const GPtrArray *list, const char *path, const char **rest)
{
    for (guint i = list->len; i-- > 0;) {
        const struct wb_listed *listed = list->pdata[i];
        struct wb_mount *mount;
        int error;

        /* Mounts that list another source need not be woken up. */
        if (!wb_listed_is_wayback(listed) || strcmp(listed->root, "/") != 0 ||
            wb_listed_of(list, listed->point) != listed ||
            (listed->source[0] == '/' && !wb_path_below(path, listed->source, NULL)))
            continue;
        mount = wb_mount_open(listed, listed->point, &error);
        /* What shows one moment (-o at=) is not the way to the present. */
        if (mount && mount->hello.moment == 0 && *mount->hello.source &&
            wb_path_below(path, mount->hello.source, rest) && may_stand_for(mount->root_fd, mount->hello.source))
            return mount;
        wb_mount_free(mount);
    }
    return NULL;
}

static bool records(const struct wb_control_hello *hello)
{
    return hello->history && !hello->read_only && hello->moment == 0;
}

int wb_mount_of_tree(const char *path, struct wb_control_hello *ret)
{
    g_autoptr(GPtrArray) list = wb_listed_mounts();
    g_autofree char *real = wb_path_real(path);
    int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);

    if (fd >= 0 && wb_request_hello(fd, ret) == 0 && records(ret))
        return fd;
    if (fd >= 0)
        close(fd);
    for (guint i = list->len; real && i-- > 0;) {
        const struct wb_listed *listed = list->pdata[i];

        if (!wb_listed_is_wayback(listed))
            continue;
        fd = open(listed->point, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        if (fd >= 0 && wb_request_hello(fd, ret) == 0 && records(ret) && strcmp(ret->source, real) == 0 &&
            may_stand_for(fd, real))
            return fd;
        if (fd >= 0)
            close(fd);
    }
    return -1;
}

/* The root of the mount in which the directory is; g_free. */
static char *root_of(const char *directory, const struct wb_control_hello *hello)
{
    g_autofree char *path = wb_path_real(directory);

    if (!path || wb_fd_is_mount(AT_FDCWD, path))
        return g_strdup(hello->source);
    while (strcmp(path, "/") != 0 && !wb_fd_is_mount(AT_FDCWD, path)) {
        char *above = g_path_get_dirname(path);

        g_free(path);
        path = above;
    }
    return g_steal_pointer(&path);
}

/* A mount shows the inode numbers of the tree behind it; only a view of the past has others. */
static bool is_root(int fd, const struct wb_control_hello *hello, int tree_fd)
{
    struct stat seen, behind;

    if (hello->moment != 0)
        return wb_fd_is_mount(fd, "");
    return fstat(fd, &seen) < 0 || fstat(tree_fd, &behind) < 0 || seen.st_ino == behind.st_ino;
}

int wb_mount_behind(const char *given, int fd, const struct wb_control_hello *hello, int *ret_tree, int *ret_store)
{
    int r = wb_server_open(fd, hello, ret_tree, ret_store);

    if (r == -EBADMSG)
        return wb_cli_fail(given, WB_SERVER_NOT_BELIEVED);
    return r < 0 ? wb_cli_fail(given, "the tree behind the mount cannot be opened (%s)", wb_errno_text(-r)) : 0;
}

int wb_tree_behind(const char *given, char **tree, char **store)
{
    static int tree_fd = -1, store_fd = -1; /* for the paths, which lead through them, until the next call */
    _cleanup_fd_ int dir_fd = wb_open_named_dir(*tree);
    _cleanup_fd_ int fd = dir_fd < 0 ? -1 : openat(dir_fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    g_autofree struct wb_control_hello *hello = g_new0(struct wb_control_hello, 1);
    g_autofree char *root = NULL, *word = NULL;
    char link[WB_FD_PATH_MAX];

    if (dir_fd == -ELOOP)
        return wb_cli_fail(given, "%s", wb_path_error_text(ELOOP));
    if (fd < 0 || wb_request_hello(fd, hello) < 0 || !*hello->source)
        return 0;
    wb_fd_closep(&tree_fd);
    wb_fd_closep(&store_fd);
    tree_fd = store_fd = -1;
    if (wb_mount_behind(given, fd, hello, &tree_fd, &store_fd) != 0)
        return WB_EXIT_FAILED;
    if (is_root(fd, hello, tree_fd)) {
        g_free(*tree);
        *tree = g_strdup(wb_fd_proc_path(tree_fd, link));
        if (!*store && store_fd >= 0)
            *store = g_strdup(wb_fd_proc_path(store_fd, link));
        return 0;
    }
    root = root_of(*tree, hello);
    word = wb_text_shell(root);
    return wb_cli_fail(given, "is a part of a tree; %s works on whole trees: name its root, %s", wb_cli_name(), word);
}

static bool is_file(const char *directory, const char *name)
{
    g_autofree char *path = g_strconcat(directory, name, NULL);
    struct stat st;

    return stat(path, &st) == 0 && S_ISREG(st.st_mode);
}

char *wb_tree_above(const char *path)
{
    g_autofree char *at = g_strdup(path);

    for (;;) {
        char *slash;

        if (is_file(at, "/.wayback/header") || is_file(at, "/.wayback/moved"))
            return *at ? g_steal_pointer(&at) : g_strdup("/");
        slash = strrchr(at, '/');
        if (!slash)
            return NULL;
        *slash = '\0';
    }
}

/* The tree at or above `path` whose history is in --store DIR; NULL after an error line. */
static char *source_of_store(const char *given, const char *path)
{
    g_autofree char *found = NULL;
    struct wb_error why = {""};
    char *tree = NULL;
    int r = wb_tree_of_store(wb_cli_store(), path, &tree, &why);

    if (r == 0) {
        found = g_strdup(tree);
        free(tree);
        return g_steal_pointer(&found);
    }
    wb_cli_fail(given, "%s", *why.text ? why.text : "not in the tree of the store given with --store");
    return NULL;
}

static struct wb_mount *mount_privately(const char *given, const char *source, enum wb_mount_need need)
{
    struct wb_private *private = start_private(given, source, need);
    struct wb_control_hello hello;
    int r;

    if (!private)
        return NULL;
    r = wb_request_hello(private->root_fd, &hello);
    if (r < 0) {
        wb_cli_fail(given, "the private mount of %s does not answer: %s", source, wb_errno_text(r));
        return NULL;
    }
    g_strlcpy(hello.source, source, sizeof(hello.source));
    return remember(wb_mount_new(private->root_fd, private->point, "", &hello), private);
}

static struct wb_mount *find_mount(const char *given, const char *path, enum wb_mount_need need,
                                   const char **rest)
{
    g_autoptr(GPtrArray) list = wb_listed_mounts();
    const struct wb_listed *listed = wb_listed_of(list, path);
    struct wb_mount *mount = known_mount(path);
    g_autofree char *source = NULL;
    int error = 0;

    *rest = "";
    if (mount && (mount->private || (listed && wb_path_below(mount->point, listed->point, NULL)))) {
        wb_path_below(path, mount->private ? mount->hello.source : mount->point, rest);
        return mount;
    }
    if (listed && wb_listed_is_wayback(listed)) {
        mount = remember(wb_mount_open(listed, path, &error), NULL);
        if (!mount)
            wb_cli_fail(given, "the Wayback mount at %s cannot be used: %s", listed->point,
                        wb_errno_text(error));
        else
            wb_path_below(path, mount->point, rest);
        return mount;
    }
    mount = remember(wb_mount_of_source(list, path, rest), NULL);
    if (mount)
        return mount;
    if (wb_cli_store()) {
        source = source_of_store(given, path);
        if (!source)
            return NULL;
    } else {
        source = wb_tree_above(path);
    }
    if (source) {
        wb_path_below(path, source, rest);
        return mount_privately(given, source, need);
    }
    wb_cli_fail(given, "not in a Wayback mount, and no history (.wayback) was found above it; mount the tree with "
                       "'wayback SRC MNT' and name the path below MNT, or name the store with --store");
    return NULL;
}

bool wb_stands_below_mount(void)
{
    g_autofree char *path = g_get_current_dir();
    struct stat here, there;

    return stat(".", &here) == 0 && stat(path, &there) == 0 && here.st_dev != there.st_dev;
}

static void warn_of_covered_directory(const struct wb_mount *mount)
{
    static bool warned;

    if (warned || !wb_stands_below_mount())
        return;
    warned = true;
    wb_cli_warn(NULL, "the current directory is below the mount %s, where nothing is recorded; run `cd .` to enter "
                "the mount", mount->point);
}

struct wb_place *wb_place_find(const char *given, enum wb_mount_need need)
{
    g_autofree char *path = need == WB_MOUNT_WRITE ? wb_path_to_change(given) : wb_path_absolute(given);
    struct wb_mount *mount;
    struct wb_place *place;
    const char *rest;
    size_t length = strlen(given);

    if (!path) {
        wb_cli_fail(given, "%s", wb_path_error_text(errno));
        return NULL;
    }
    mount = find_mount(given, path, need, &rest);
    if (!mount)
        return NULL;
    if (!mount->hello.history) {
        wb_cli_fail(given, "%s is mounted with history=none; mount it without that option to use its history",
                    mount->point);
        return NULL;
    }
    if (need == WB_MOUNT_WRITE && mount->hello.read_only) {
        wb_cli_fail(given, "%s is mounted read-only; mount it without -o ro to change it", mount->point);
        return NULL;
    }
    if (given[0] != '/')
        warn_of_covered_directory(mount);
    while (length > 1 && given[length - 1] == '/')
        length--;
    place = g_new0(struct wb_place, 1);
    place->mount = mount;
    place->given = g_strndup(given, length);
    place->path = g_strdup(rest);
    return place;
}

struct wb_place *wb_place_free(struct wb_place *place)
{
    if (place) {
        g_free(place->given);
        g_free(place->path);
        g_free(place);
    }
    return NULL;
}

int wb_place_stat(const struct wb_place *place, struct stat *ret)
{
    return fstatat(place->mount->root_fd, *place->path ? place->path : ".", ret, AT_SYMLINK_NOFOLLOW) < 0
               ? -errno
               : 0;
}
