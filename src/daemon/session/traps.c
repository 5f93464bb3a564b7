/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "daemon/session/traps.h"

#include "base/cleanup.h"
#include "base/dir.h"
#include "daemon/system/detach.h"
#include "format/format.h"
#include "wayback/control.h"
#include "wayback/mounts.h"
#include "wayback/quote.h"
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <glib.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#ifndef STATX_ATTR_MOUNT_ROOT
#define STATX_ATTR_MOUNT_ROOT 0x2000
#endif

/* ---- the running system ---------------------------------------------------------------------- */

/* Programs, settings, sockets and kernel interfaces that each process may need at any time, the daemon included. */
static const char *const system_directories[] = {
    "/bin", "/boot", "/dev", "/etc", "/lib", "/lib32", "/lib64", "/libx32", "/proc", "/run", "/sbin", "/sys", "/tmp",
    "/usr", "/usr/bin", "/usr/lib", "/usr/lib64", "/usr/sbin", "/var", "/var/lib", "/var/run", "/var/tmp",
};

static bool is_at_or_above(const char *directory, const char *path)
{
    size_t length = strlen(directory);

    if (length == 1)
        return path[0] == '/';
    return strncmp(path, directory, length) == 0 && (path[length] == '/' || path[length] == '\0');
}

static bool is_of_system(const char *directory)
{
    static const char *const kernels[] = {"/proc", "/sys"};

    for (size_t i = 0; i < G_N_ELEMENTS(system_directories); i++)
        if (is_at_or_above(directory, system_directories[i]))
            return true;
    for (size_t i = 0; i < G_N_ELEMENTS(kernels); i++)
        if (is_at_or_above(kernels[i], directory))
            return true;
    return false;
}

/* A file of the running program that is at or below `directory`: the program itself or a library. g_free; or NULL. */
static char *file_of_program(const char *directory)
{
    g_autofree char *maps = NULL;
    g_auto(GStrv) lines = NULL;

    if (!g_file_get_contents("/proc/self/maps", &maps, NULL, NULL))
        return NULL;
    lines = g_strsplit(maps, "\n", -1);
    for (char **line = lines; *line; line++) {
        const char *path = strchr(*line, '/');

        if (path && strstr(*line, " r-xp ") && is_at_or_above(directory, path))
            return g_strdup(path);
    }
    return NULL;
}

static int check_mount_point(const struct wb_session *session, struct wb_error *why)
{
    g_autofree char *file = NULL;

    if (is_of_system(session->mountpoint))
        return wb_error_set(why, -EBUSY, "Refusing to mount over %s. The running system needs this directory; choose "
                            "%s", session->mountpoint,
                            strcmp(session->mountpoint, "/") == 0 ? "a directory of your own files, such as /home"
                                                                  : "another directory");
    file = file_of_program(session->mountpoint);
    if (!file)
        return 0;
    return wb_error_set(why, -EBUSY, "Refusing to mount over %s. It contains %s, which is needed to mount it again; "
                        "install Wayback elsewhere, or choose another mount point", session->mountpoint, file);
}

int wb_traps_check_system(const struct wb_session *session, struct wb_error *why)
{
    const struct wb_options *options = session->options;
    int r = check_mount_point(session, why);

    /* To look at it is harmless. */
    if (r < 0 || options->at || options->read_only || !options->history || !is_of_system(session->source))
        return r;
    return wb_error_set(why, -EBUSY, "Refusing to record %s. The running system changes this directory past any mount; "
                        "choose a directory of your own files", session->source);
}

/* ---- MNT ------------------------------------------------------------------------------------- */

/*
 * The name of an entry of the directory; g_free. NULL: it is empty, or cannot be read. Each new ext file system has
 * lost+found, which is no file of a user.
 */
static char *find_entry(const char *directory)
{
    DIR *dir = wb_opendir_at(AT_FDCWD, directory);
    struct dirent *entry;
    char *found = NULL;
    int r = 0;

    if (!dir)
        return NULL;
    while (!found && wb_next_entry(dir, &entry, &r))
        if (strcmp(entry->d_name, "lost+found") != 0)
            found = g_strdup(entry->d_name);
    closedir(dir);
    return found;
}

static bool is_same(int fd, const char *path)
{
    struct stat one, other;

    return fstat(fd, &one) == 0 && stat(path, &other) == 0 && one.st_dev == other.st_dev && one.st_ino == other.st_ino;
}

static int hello(int fd, struct wb_control_hello *ret)
{
    g_autofree struct wb_control *control = g_new0(struct wb_control, 1);

    control->version = WB_CONTROL_VERSION;
    control->command = WB_CONTROL_HELLO;
    if (ioctl(fd, WB_CONTROL_IOCTL, control) < 0 || wb_control_check(WB_CONTROL_HELLO, 0, control) < 0)
        return -ENOTTY;
    memcpy(ret, control->data, sizeof(*ret));
    return 0;
}

static const char *unmount_command(void)
{
    return geteuid() == 0 ? "umount" : "fusermount3 -u";
}

/* "wayback: m is mounted ..." for a directory that is one of our mounts already. */
static int refuse_mounted(const char *point, const struct wb_control_hello *mount, struct wb_error *why)
{
    g_autofree char *word = wb_quote_word(point);
    bool in_place = strcmp(point, mount->source) == 0;

    if (mount->pid == 0)
        return wb_error_set(why, -EBUSY, "%s is mounted already, by another user", point);
    return wb_error_set(why, -EBUSY, "%s is mounted already%s%s (pid %u). To unmount: %s %s", point,
                        in_place ? ", in place" : ", and shows ", in_place ? "" : mount->source, mount->pid,
                        unmount_command(), word);
}

static int check_empty(const struct wb_session *session, struct wb_error *why)
{
    _cleanup_close_ int fd = open(session->mountpoint, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    g_autofree struct wb_control_hello *mount = g_new0(struct wb_control_hello, 1);
    g_autofree char *entry = NULL, *name = NULL;
    struct statx stx;

    if (session->options->nonempty || is_same(session->src_fd, session->mountpoint))
        return 0;
    if (fd >= 0 && statx(fd, "", AT_EMPTY_PATH, 0, &stx) == 0 && stx.stx_attributes & STATX_ATTR_MOUNT_ROOT &&
        hello(fd, mount) == 0)
        return refuse_mounted(session->mountpoint, mount, why);
    entry = find_entry(session->mountpoint);
    if (!entry)
        return 0;
    name = wb_quote_text(entry);
    return wb_error_set(why, -ENOTEMPTY, "%s is not empty (it contains %s), and the mount would hide its files; choose "
                        "an empty directory, or use -o nonempty", session->mountpoint, name);
}

/* ---- SRC ------------------------------------------------------------------------------------- */

static int check_source_is_no_mount(const struct wb_session *session, struct wb_error *why)
{
    g_autofree struct wb_control_hello *mount = g_new0(struct wb_control_hello, 1);
    const char *behind;
    struct statx stx;

    if (hello(session->src_fd, mount) < 0)
        return 0;
    if (strcmp(session->source, session->mountpoint) == 0 && strcmp(session->source, mount->source) == 0)
        return refuse_mounted(session->mountpoint, mount, why);
    behind = *mount->source ? mount->source : "another tree";
    if (statx(session->src_fd, "", AT_EMPTY_PATH, 0, &stx) == 0 && !(stx.stx_attributes & STATX_ATTR_MOUNT_ROOT))
        return wb_error_set(why, -EBUSY, "%s is in a Wayback mount (of %s), which records it already. Use it there",
                            session->source, behind);
    return wb_error_set(why, -EBUSY, "%s is itself a Wayback mount (of %s). Mount %s instead.", session->source, behind,
                        *mount->source ? mount->source : "that");
}

static bool has_history(const char *directory)
{
    static const char *const names[] = {"header", "moved"};

    for (size_t i = 0; i < G_N_ELEMENTS(names); i++) {
        g_autofree char *path = g_build_filename(directory, WB_STORE_NAME, names[i], NULL);

        if (access(path, F_OK) == 0)
            return true;
    }
    return false;
}

static int check_trees_above(const struct wb_session *session, struct wb_error *why)
{
    g_autofree char *above = g_path_get_dirname(session->source);

    for (;;) {
        char *next;

        if (has_history(above)) {
            g_autofree char *word = wb_quote_word(above);

            return wb_error_set(why, -EBUSY, "%s is a part of the tree %s, which has a history. Mount that tree: "
                                "wayback %s; or delete its history (%s/" WB_STORE_NAME ")", session->source, above,
                                word, above);
        }
        if (above[1] == '\0')
            return 0;
        next = g_path_get_dirname(above);
        g_free(above);
        above = next;
    }
}

/* A tree below SRC that is mounted in place would be seen by two daemons, each with a history of it. */
static int check_trees_below(const struct wb_session *session, struct wb_error *why)
{
    g_autoptr(GPtrArray) list = wb_listed_mounts();

    for (guint i = 0; i < list->len; i++) {
        const struct wb_listed *listed = list->pdata[i];
        g_autofree char *word = NULL;

        if (strcmp(listed->type, "fuse.wayback") != 0 || strcmp(listed->source, listed->point) != 0 ||
            strcmp(listed->point, session->source) == 0 || !is_at_or_above(session->source, listed->point))
            continue;
        word = wb_quote_word(listed->point);
        return wb_error_set(why, -EBUSY, "%s contains %s, which is mounted with a history of its own. To unmount: "
                            "%s %s", session->source, listed->point, unmount_command(), word);
    }
    return 0;
}

int wb_traps_check_tree(const struct wb_session *session, struct wb_error *why)
{
    const struct wb_options *options = session->options;
    int r = 0;

    /* A dead mount is replaced, and a layer of a branch is in a directory of its own. */
    if (wb_detach_is_dead(session->mountpoint) || options->plain || options->cover)
        return 0;
    if (!options->at)
        r = check_source_is_no_mount(session, why);
    if (r == 0)
        r = check_empty(session, why);
    if (r < 0 || options->at || options->read_only || !options->history || has_history(session->source))
        return r;
    r = check_trees_above(session, why);
    return r < 0 ? r : check_trees_below(session, why);
}
