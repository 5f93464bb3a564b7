/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * /proc/PID/ns has the namespaces of a process, for those who may trace it. The daemon gave up the capability to trace
 * the processes of others, and those of root have more capabilities than the daemon has left, so mostly it may not
 * look. What everybody may read says the same:
 *
 *  - A mount is in one namespace and its number is that of no other mount. So two processes are in one mount namespace
 *    if the lists of mounts they see (mountinfo) have one in common. Under a chroot(2) to a directory that is no mount
 *    the list may be empty; then nothing is known.
 *  - The maps of users, groups and projects are read relative to the namespace of the reader. Those of the daemon's own
 *    show its parent's numbers, and those of another one show other numbers, or none. Only below the first user
 *    namespace of the system can another one have the same three maps, and only where somebody with all power in that
 *    one wrote all numbers into all three. Containers have fewer, and no map of projects.
 */
#include "daemon/caller/caller.h"

#include "base/cleanup.h"
#include <errno.h>
#include <fcntl.h>
#include <glib.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* A map has 340 lines at most. */
#define MAP_MAX (340 * 36)

static const char *const maps[] = {"uid_map", "gid_map", "projid_map"};

/* The numbers in /proc are those of the daemon's process namespace, and so of its requests. */
static bool is_our_proc(void)
{
    char self[16] = "";

    return readlink("/proc/self", self, sizeof(self) - 1) > 0 && atol(self) == (long)getpid();
}

/* Bound to the process: when that has ended, nothing below it can be read, whoever has its number then. */
static int open_process(const char *number)
{
    char path[32];
    int fd;

    snprintf(path, sizeof(path), "/proc/%s", number);
    fd = open(path, O_PATH | O_DIRECTORY | O_CLOEXEC);
    return fd < 0 ? -errno : fd;
}

/* 1, 0 or -errno: -EACCES where the daemon may not look. */
static int have_same_link(int one, int other, const char *name)
{
    struct stat a, b;

    if (fstatat(one, name, &a, 0) < 0 || fstatat(other, name, &b, 0) < 0)
        return -errno;
    return a.st_dev == b.st_dev && a.st_ino == b.st_ino;
}

/* ---- by what everybody may read --------------------------------------------------------------- */

static void close_stream(FILE **stream)
{
    if (*stream)
        fclose(*stream);
}
#define _cleanup_stream_ __attribute__((cleanup(close_stream)))

static void free_line(char **line)
{
    free(*line);
}

static FILE *open_text(int process, const char *name)
{
    int fd = openat(process, name, O_RDONLY | O_CLOEXEC);
    FILE *stream = fd < 0 ? NULL : fdopen(fd, "re");

    if (!stream && fd >= 0)
        close(fd);
    return stream;
}

static int read_map(int process, const char *name, char *text, size_t size)
{
    _cleanup_stream_ FILE *stream = open_text(process, name);
    size_t length;

    if (!stream)
        return -errno;
    length = fread(text, 1, size - 1, stream);
    text[length] = '\0';
    return ferror(stream) ? -EIO : length == size - 1 ? -E2BIG : 0;
}

static int have_same_maps(int one, int other)
{
    g_autofree char *a = g_try_malloc(MAP_MAX), *b = g_try_malloc(MAP_MAX);
    bool same = a && b;

    if (!same)
        return -ENOMEM;
    for (unsigned i = 0; same && i < G_N_ELEMENTS(maps); i++) {
        int r = read_map(one, maps[i], a, MAP_MAX);

        if (r == 0)
            r = read_map(other, maps[i], b, MAP_MAX);
        if (r < 0)
            return r;
        same = strcmp(a, b) == 0;
    }
    return same;
}

/*
 * The mount of a line of mountinfo: its number, its parent's, and the device. Cuts the rest off. wayback/mounts.h would
 * keep whole lines: a caller in a namespace of its own can have 100,000 mounts with paths of 4 KiB.
 */
static bool cut_mount(char *line)
{
    char *end = line;

    for (unsigned i = 0; end && i < 3; i++)
        end = strchr(end + (i > 0), ' ');
    if (!end)
        return false;
    *end = '\0';
    return true;
}

static int read_mounts(int process, GHashTable *mounts)
{
    _cleanup_stream_ FILE *stream = open_text(process, "mountinfo");
    char *line __attribute__((cleanup(free_line))) = NULL;
    size_t size = 0;

    if (!stream)
        return -errno;
    while (getline(&line, &size, stream) > 0)
        if (cut_mount(line))
            g_hash_table_add(mounts, g_strdup(line));
    return ferror(stream) ? -EIO : 0;
}

/* -ENODATA: the caller sees no mount at all. */
static int share_a_mount(int caller, int daemon)
{
    g_autoptr(GHashTable) theirs = g_hash_table_new_full(g_str_hash, g_str_equal, g_free, NULL);
    g_autoptr(GHashTable) ours = g_hash_table_new_full(g_str_hash, g_str_equal, g_free, NULL);
    GHashTableIter iter;
    gpointer mount;
    int r = read_mounts(caller, theirs);

    if (r == 0)
        r = read_mounts(daemon, ours);
    if (r < 0)
        return r;
    g_hash_table_iter_init(&iter, theirs);
    while (g_hash_table_iter_next(&iter, &mount, NULL))
        if (g_hash_table_contains(ours, mount))
            return 1;
    return g_hash_table_size(theirs) > 0 ? 0 : -ENODATA;
}

/* ---- both ------------------------------------------------------------------------------------ */

static bool may_not_look(int r)
{
    return r == -EACCES || r == -EPERM;
}

int wb_caller_is_at_home(pid_t caller)
{
    _cleanup_close_ int theirs = -1, ours = -1;
    char number[16];
    int r;

    if (caller <= 0)
        return 0;
    if (!is_our_proc())
        return -ENODATA;
    snprintf(number, sizeof(number), "%d", (int)caller);
    theirs = open_process(number);
    ours = open_process("self");
    if (theirs < 0 || ours < 0)
        return theirs < 0 ? theirs : ours;
    r = have_same_link(theirs, ours, "ns/user");
    if (may_not_look(r))
        r = have_same_maps(theirs, ours);
    if (r != 1)
        return r;
    r = have_same_link(theirs, ours, "ns/mnt");
    return may_not_look(r) ? share_a_mount(theirs, ours) : r;
}
