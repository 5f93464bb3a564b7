/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* The lock of a store, for one daemon or one writing tool at a time, and the process that holds it. */
#include "store/parts.h"

#include "base/cleanup.h"
#include "base/io.h"
#include "wayback/mounts.h"
#include "wayback/quote.h"
#include <errno.h>
#include <fcntl.h>
#include <glib.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>

/* An unmounted daemon ends as soon as it has synced its store and no process uses a file of the mount. */
#define ENDING_TRIES 1500
#define ENDING_PAUSE_US 20000

/* The data that wb_store_claim writes. */
struct holder {
    unsigned long pid;
    dev_t device; /* of its mount; 0 is none */
};

static struct holder read_holder(int fd)
{
    struct holder holder = {0};
    char text[64];
    size_t length = 0;
    unsigned major, minor;

    if (wb_pread_full(fd, text, sizeof(text) - 1, 0, &length) < 0)
        length = 0;
    text[length] = '\0';
    if (sscanf(text, "%lu %u:%u", &holder.pid, &major, &minor) == 3)
        holder.device = makedev(major, minor);
    return holder;
}

/* False: its mounts cannot be read, or it has none. Else *point is where its mount is, to be freed; NULL: gone. */
static bool find_mount(const struct holder *holder, char **point)
{
    bool has_mount = holder->pid != 0 && holder->device != 0;
    g_autoptr(GPtrArray) list = has_mount ? wb_listed_of_process((pid_t)holder->pid) : NULL;

    *point = NULL;
    for (guint i = 0; list && !*point && i < list->len; i++) {
        const struct wb_listed *listed = list->pdata[i];

        if (listed->device == holder->device)
            *point = g_strdup(listed->point);
    }
    return list && list->len > 0;
}

/* Whether its mount has disappeared: then the daemon is about to end and to release the lock. */
static bool is_ending(const struct holder *holder)
{
    g_autofree char *point = NULL;

    return find_mount(holder, &point) && !point;
}

/* "s is mounted at full (pid 13250). To unmount: fusermount3 -u full" */
static int report_mount(const struct holder *holder, const char *point, const char *home, struct wb_error *why)
{
    g_autofree char *proc = g_strdup_printf("/proc/%lu", holder->pid), *word = wb_quote_word(point);
    g_autofree char *parent = g_path_get_dirname(home), *name = g_path_get_basename(home);
    bool in_tree = strcmp(name, WB_STORE_NAME) == 0;
    struct stat st;
    const char *command = stat(proc, &st) < 0 || st.st_uid == 0 ? "umount" : "fusermount3 -u";

    if (!in_tree)
        return wb_error_set(why, -EBUSY, "the store %s is in use by the mount at %s (pid %lu). To unmount: %s %s", home,
                            point, holder->pid, command, word);
    /* The path of the store may be relative to the tree: the caller names that. */
    return wb_error_set(why, -EBUSY, "%s is mounted at %s (pid %lu). To unmount: %s %s",
                        strcmp(parent, ".") == 0 ? "the tree" : parent, point, holder->pid, command, word);
}

static int report_holder(const struct holder *holder, bool ending, const char *home, struct wb_error *why)
{
    char path[64], command[64] = "";
    _cleanup_close_ int comm = -1;
    g_autofree char *point = NULL;
    unsigned long pid = holder->pid;
    size_t length = 0;

    if (!ending && find_mount(holder, &point) && point)
        return report_mount(holder, point, home, why);
    if (ending)
        return wb_error_set(why, -EBUSY,
                            "the store %s is in use by process %lu, which was unmounted and has not "
                            "ended (programs may still use files of that mount); end these programs and try again",
                            home, pid);
    if (pid == 0)
        return wb_error_set(why, -EBUSY, "the store %s is in use by another process; wait until it has ended", home);
    snprintf(path, sizeof(path), "/proc/%lu/comm", pid);
    comm = open(path, O_RDONLY | O_CLOEXEC);
    if (comm >= 0 && wb_pread_full(comm, command, sizeof(command) - 1, 0, &length) == 0 && length > 0)
        command[length - 1] = '\0';
    return wb_error_set(why, -EBUSY, "the store %s is in use by process %lu (%s); unmount it there, or end that "
                        "process", home, pid, command[0] ? command : "not seen from here");
}

/*
 * If the files of a store have other names (a backup made of hard links), its lock is the lock of the other store as
 * well. Once no process holds it, this store gets its own file; vfsck, which separates the other files, needs the lock
 * first.
 */
static int open_lock(int dir_fd)
{
    int fd = wb_open_own(dir_fd, WB_LOCK_NAME, O_RDWR | O_CREAT, 0600);

    if (fd != -EMLINK)
        return fd;
    fd = wb_open_own(dir_fd, WB_LOCK_NAME, O_RDONLY, 0);
    if (fd < 0 || flock(fd, LOCK_EX | LOCK_NB) < 0)
        return fd; /* held: the caller reports the holder */
    close(fd);
    if (unlinkat(dir_fd, WB_LOCK_NAME, 0) < 0)
        return -errno;
    return wb_open_own(dir_fd, WB_LOCK_NAME, O_RDWR | O_CREAT | O_EXCL, 0600);
}

int wb_store_dir_lock(int dir_fd, const char *home, struct wb_error *why)
{
    _cleanup_close_ int fd = open_lock(dir_fd);

    if (fd < 0)
        return wb_error_set(why, fd, "cannot lock the store %s: %s", home, g_strerror(-fd));
    for (int tries = 1; flock(fd, LOCK_EX | LOCK_NB) < 0; tries++) {
        struct holder holder;
        bool ending;

        if (errno != EWOULDBLOCK)
            return wb_error_set(why, -errno, "cannot lock the store %s: %s", home, g_strerror(errno));
        holder = read_holder(fd);
        ending = is_ending(&holder);
        if (!ending || tries >= ENDING_TRIES)
            return report_holder(&holder, ending, home, why);
        g_usleep(ENDING_PAUSE_US);
    }
    return wb_steal_fd(&fd);
}

/*
 * The device of the file system of `fd` as /proc/locks has it: that of its superblock. On some file systems (btrfs)
 * stat(2) reports another device, but the table of mounts has it. False if it is not known.
 */
static bool find_device(int fd, dev_t *ret)
{
    g_autoptr(GPtrArray) list = NULL;
    struct statx stx;

    if (statx(fd, "", AT_EMPTY_PATH, STATX_MNT_ID, &stx) < 0 || !(stx.stx_mask & STATX_MNT_ID))
        return false;
    list = wb_listed_mounts();
    for (guint i = 0; i < list->len; i++) {
        const struct wb_listed *listed = list->pdata[i];

        if ((uint64_t)listed->id == stx.stx_mnt_id) {
            *ret = listed->device;
            return true;
        }
    }
    return false;
}

/*
 * Its name there, empty if it is not known. A reader asks again and again, and the table of mounts may be long: the
 * store keeps the answer for as long as it is in its place.
 */
static char *name_device(struct wb_store *store)
{
    uint64_t place = ((uint64_t)atomic_load(&store->moves) + 1) << 32, known = atomic_load(&store->lock_device);
    unsigned number = (unsigned)known;
    dev_t device;

    if (known >> 32 != place >> 32) {
        if (!find_device(store->dir_fd, &device))
            return g_strdup("");
        /* The kernel has 12 bits for the one and 20 for the other. */
        number = major(device) << 20 | minor(device);
        atomic_store(&store->lock_device, place | number);
    }
    return g_strdup_printf("%02x:%02x", number >> 20, number & 0xfffff);
}

/* Whether a line of the table says that somebody has it for writing; the table is cut into lines. */
static bool is_locked(char *table, const char *wanted)
{
    for (char *line = table, *end; line && *line; line = end ? end + 1 : NULL) {
        end = strchr(line, '\n');
        if (end)
            *end = '\0';
        if (strstr(line, "FLOCK") && strstr(line, " WRITE ") && g_str_has_suffix(line, wanted))
            return true;
    }
    return false;
}

/* A table that is shorter is read at once, as it is at one moment (Linux: a page). */
#define TABLE_AT_ONCE 2048
/* A longer one is read in pieces, and a lock is missed if others before it are released in between: read again. */
#define LOOKS 16

bool wb_store_is_held(const struct wb_store *store)
{
    g_autofree char *wanted = NULL;
    g_autofree char *device = NULL;
    bool held = false, again = true;
    struct stat st;

    if (fstatat(store->dir_fd, WB_LOCK_NAME, &st, AT_SYMLINK_NOFOLLOW) < 0)
        return false;
    /* "1: FLOCK  ADVISORY  WRITE 123 08:01:4711 0 EOF" */
    device = name_device((struct wb_store *)store);
    wanted = g_strdup_printf("%s:%llu 0 EOF", device, (unsigned long long)st.st_ino);
    for (int i = 0; i < LOOKS && !held && again; i++) {
        g_autofree char *table = NULL;
        gsize length;

        /* If locks are not visible, assume the worst. */
        if (!g_file_get_contents("/proc/locks", &table, &length, NULL))
            return true;
        again = length >= TABLE_AT_ONCE;
        held = is_locked(table, wanted);
    }
    return held;
}
