/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Defines the functions of libc that change files, and the loop that ends work at each of their calls.
 *
 * **Power.** The model promises as little as ext4 (data=ordered) and xfs do, and never less:
 *
 *  - Names, attributes, times, and sizes set by ftruncate or fallocate are one sequence, in the order of the calls. The
 *    disk has the changes up to some point of it: the journal commits no change before an earlier one.
 *  - Bytes are on the disk, or not, page by page and in any order. If a write makes a file longer, the file has its
 *    new size on the disk if one of the new pages is there; those missing before it are zeros. The times that a write
 *    sets belong to the sequence. So does the size, which the journal commits when the bytes are written back, hence
 *    after everything that precedes the write. The new bytes of a write over old ones are on the disk no earlier than
 *    its times, either: the kernel writes back bytes much later than it commits times. docs/guarantees.md has the limit
 *    for exceptions.
 *  - fsync and fdatasync bring the bytes of their file to the disk. If the file has grown since its last sync, all of
 *    the sequence is committed; otherwise fsync commits it as far as the last change of this file or directory, and
 *    fdatasync commits as far as the last change of the file's size. syncfs brings everything to the disk.
 *    Bytes that sync_file_range has waited for are on the disk when a later entry of the sequence is committed, since
 *    the new size precedes that, and each commit flushes the cache of the device.
 *  - Stores into a mapping are there as a whole or not at all, unless the file is synced.
 *
 * A cut is carried out by undoing calls, the last one first, so inodes and their times of birth remain. A removed file
 * is only moved aside, so that it can be moved back. No call can set a ctime, so stat(2) and similar functions return
 * the times that an inode had on the disk, as long as it has not been changed since the cut.
 */
#include "disk.h"
#include "amount.h"
#include <check.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/fs.h>
#include <linux/magic.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/vfs.h>
#include <sys/wait.h>
#include <sys/xattr.h>
#include <unistd.h>

#define STOPPED 42 /* exit status */
#define PATH_SIZE 1024
#define SHOWN_MAX 4096

/* The times that stat returns for an inode while its real ctime is `now`, since a ctime cannot be set back. */
struct shown {
    ino_t ino;
    struct timespec mtime, ctime, now;
};

/* Shared by the process of the test and the one that does the work. */
static struct {
    unsigned calls;
    int result;
    char last[64 + 2 * PATH_SIZE]; /* the call at which it ended */
    unsigned shown;
    struct shown inodes[SHOWN_MAX];
} *shared;

static struct {
    const struct disk_trial *trial;
    char top[PATH_SIZE], aside[PATH_SIZE + 8];
    size_t length;
    bool watches; /* mappings are noted */
    bool counts;
    bool prepares;
    enum disk_way way;
    unsigned call;
} disk;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

const void *disk_data(void)
{
    return disk.trial->data;
}

static bool is_power(void)
{
    return disk.counts && disk.way >= DISK_LOSE_ALL;
}

/* ---- the path of a call ---------------------------------------------------------------------- */

/* The path of an open file; false: it is not below the directory. */
static bool path_of_fd(int fd, char path[PATH_SIZE])
{
    char link[32];
    ssize_t n;

    snprintf(link, sizeof(link), "/proc/self/fd/%d", fd);
    n = readlink(link, path, PATH_SIZE - 1);
    if (n < 0)
        return false;
    path[n] = 0;
    return (size_t)n >= disk.length && memcmp(path, disk.top, disk.length) == 0 &&
           (path[disk.length] == '/' || !path[disk.length]);
}

static bool path_at(int dir, const char *name, char path[PATH_SIZE])
{
    char base[PATH_SIZE];
    int fd;

    if (sscanf(name, "/proc/self/fd/%d", &fd) == 1 && !strchr(name + 14, '/'))
        return path_of_fd(fd, path);
    if (*name == '/') {
        snprintf(path, PATH_SIZE, "%s", name);
        return strncmp(path, disk.top, disk.length) == 0;
    }
    if (dir == AT_FDCWD || !path_of_fd(dir, base))
        return false;
    ck_assert_int_lt(snprintf(path, PATH_SIZE, *name ? "%s/%s" : "%s", base, name), PATH_SIZE);
    return true;
}

/* ---- power: calls that have not reached the disk --------------------------------------------- */

enum kind { MADE, REMOVED, RENAMED, EXCHANGED, ATTRS, XATTR, CUT, WRITTEN };

/* One call, and how to undo it. */
struct entry {
    enum kind kind;
    char *path, *other;
    char *aside; /* where a removed or replaced file is now */
    bool linked; /* it has other names, so its name was really removed: `fd` can be linked there again */
    int fd;      /* of the file: ATTRS, CUT, WRITTEN; -1: none */
    struct stat before;
    uint64_t offset, length;
    uint8_t *bytes; /* the previous ones; XATTR: the previous value of the attribute `other`, NULL: none */
    bool synced;
    unsigned written; /* WRITTEN: number of entries when sync_file_range wrote it to the device; 0: it did not */
    unsigned touched;
    struct shown times[4];
};

#define ENTRIES_MAX 4000
#define MAPPINGS_MAX 8
#define PAGE 4096u

static struct entry *entries;
static unsigned entry_count, committed, asides;
static struct {
    ino_t ino;
    int fd;
    size_t length;
    uint8_t *bytes; /* on the disk */
} mappings[MAPPINGS_MAX];
static unsigned mapping_count;

static int real_stat(int dir, const char *name, struct stat *st)
{
    return (int)syscall(SYS_newfstatat, dir, name, st, AT_SYMLINK_NOFOLLOW | (*name ? 0 : AT_EMPTY_PATH));
}

static struct entry *entry_new(enum kind kind, const char *path)
{
    struct entry *entry = &entries[entry_count];

    ck_assert_uint_lt(entry_count, ENTRIES_MAX);
    entry_count++;
    *entry = (struct entry){.kind = kind, .path = g_strdup(path), .fd = -1};
    return entry;
}

/* The times of an inode before the call. */
static void touch(struct entry *entry, const struct stat *st)
{
    entry->times[entry->touched++] =
        (struct shown){.ino = st->st_ino, .mtime = st->st_mtim, .ctime = st->st_ctim};
}

static void touch_path(struct entry *entry, const char *path)
{
    struct stat st;

    if (real_stat(AT_FDCWD, path, &st) == 0)
        touch(entry, &st);
}

static void touch_parent(struct entry *entry, const char *path)
{
    g_autofree char *parent = g_path_get_dirname(path);

    touch_path(entry, parent);
}

/* Drops the newest entry, whose call failed. */
static void entry_drop(void)
{
    entry_count--;
}

static void note_made(const char *path)
{
    touch_parent(entry_new(MADE, path), path);
}

static void note_linked(const char *from, const char *path)
{
    struct entry *entry = entry_new(MADE, path);

    touch_parent(entry, path);
    touch_path(entry, from);
}

/* Keeps a file that loses its name `path`, so that it can get the name again. True: it was moved aside. */
static bool keep_removed(struct entry *entry, const char *path)
{
    struct stat st;

    if (real_stat(AT_FDCWD, path, &st) < 0)
        return false;
    touch(entry, &st);
    if (!S_ISDIR(st.st_mode) && st.st_nlink > 1) {
        entry->linked = true;
        entry->fd = (int)syscall(SYS_openat, AT_FDCWD, path, O_PATH | O_NOFOLLOW | O_CLOEXEC);
        return false;
    }
    entry->aside = g_strdup_printf("%s/%u", disk.aside, asides++);
    ck_assert_int_eq(syscall(SYS_renameat2, AT_FDCWD, path, AT_FDCWD, entry->aside, 0), 0);
    return true;
}

/* A writable descriptor of the file, the same for all entries of one inode, since one for each would be too many. */
static int keep_open(int fd, const struct stat *st, const char *path)
{
    char link[32];

    for (unsigned i = entry_count; i-- > 0;)
        if (entries[i].fd >= 0 && !entries[i].linked && entries[i].before.st_ino == st->st_ino)
            return entries[i].fd;
    snprintf(link, sizeof(link), "/proc/self/fd/%d", fd);
    fd = (int)syscall(SYS_openat, AT_FDCWD, fd >= 0 ? link : path, O_RDWR | O_CLOEXEC);
    return fd;
}

/* Notes the attributes of the open file, or, if `fd` is -1, of the one at the path. */
static void note_attrs(int fd, const char *path)
{
    struct entry *entry = entry_new(ATTRS, path);

    if (fd >= 0 ? real_stat(fd, "", &entry->before) < 0 : real_stat(AT_FDCWD, path, &entry->before) < 0)
        return;
    touch(entry, &entry->before);
}

static void note_xattr(const char *path, const char *name)
{
    struct entry *entry = entry_new(XATTR, path);
    char value[4096];
    ssize_t n = lgetxattr(path, name, value, sizeof(value));

    touch_path(entry, path);
    entry->other = g_strdup(name);
    if (n < 0)
        return;
    entry->bytes = g_memdup2(value, (gsize)n + 1);
    entry->length = (uint64_t)n;
}

/* Notes bytes from `offset` on that are going to change; CUT: the size as well. */
static void note_bytes(enum kind kind, int fd, const char *path, uint64_t offset, uint64_t length)
{
    struct entry *entry;
    struct stat st;
    int own;

    ck_assert_int_eq(real_stat(fd, "", &st), 0);
    own = keep_open(fd, &st, path);
    ck_assert_int_ge(own, 0);
    entry = entry_new(kind, path);
    entry->before = st;
    entry->fd = own;
    entry->offset = offset;
    touch(entry, &st);
    if (kind == WRITTEN)
        entry->length = length;
    if (offset < (uint64_t)st.st_size) {
        uint64_t old = MIN(length, (uint64_t)st.st_size - offset);

        entry->bytes = g_malloc(old);
        ck_assert_int_eq(syscall(SYS_pread64, own, entry->bytes, old, offset), (long)old);
        entry->length = kind == WRITTEN ? length : old;
    }
}

static bool is_of(const struct entry *entry, ino_t ino)
{
    for (unsigned i = 0; i < entry->touched; i++)
        if (entry->times[i].ino == ino)
            return true;
    return false;
}

static void keep_mapping(unsigned i)
{
    ck_assert_int_eq(syscall(SYS_pread64, mappings[i].fd, mappings[i].bytes, mappings[i].length, 0),
                     (long)mappings[i].length);
}

/* A sync of an inode; 0: of everything. `times`: it commits all changes of the inode, not only those of its size. */
static void note_sync(ino_t ino, bool times)
{
    bool grew = ino == 0;

    for (unsigned i = 0; i < entry_count; i++) {
        struct entry *entry = &entries[i];

        if (ino && !is_of(entry, ino))
            continue;
        if (entry->kind == WRITTEN && !entry->synced)
            grew |= entry->offset + entry->length > (uint64_t)entry->before.st_size;
        if (times || entry->kind == CUT)
            committed = MAX(committed, i + 1);
        entry->synced = true;
    }
    if (grew)
        committed = entry_count;
    for (unsigned i = 0; i < entry_count; i++)
        entries[i].synced |= entries[i].written > 0 && (grew || committed > entries[i].written);
    for (unsigned i = 0; i < mapping_count; i++)
        if (!ino || mappings[i].ino == ino)
            keep_mapping(i);
}

/* ---- power: the cut -------------------------------------------------------------------------- */

static bool is_kept(uint64_t a, uint64_t b)
{
    uint64_t mixed = (a * 31 + b) * 0x9e3779b97f4a7c15u + (uint64_t)disk.call * 0xbf58476d1ce4e5b9u;

    mixed = (mixed ^ mixed >> 29) * 0x94d049bb133111ebu;
    return disk.way == DISK_LOSE_SOME && mixed >> 62 == 0;
}

/* `dated`: the sequence is committed up to this write. */
static void undo_written(const struct entry *entry, bool dated)
{
    uint64_t end = entry->offset + entry->length, old_size = (uint64_t)entry->before.st_size, size = old_size;
    struct stat st;

    ck_assert_int_eq(real_stat(entry->fd, "", &st), 0);
    for (uint64_t at = entry->offset, next; at < end; at = next) {
        uint64_t old_end;

        next = MIN(end, (at / PAGE + 1) * PAGE);
        if (dated && (disk.way == DISK_LOSE_STORE ? !strstr(entry->path, "/.wayback/")
                                                  : is_kept(entry->before.st_ino, at / PAGE))) {
            size = MAX(size, next);
            continue;
        }
        old_end = MIN(next, MAX(at, old_size));
        if (old_end > at)
            ck_assert_int_eq(syscall(SYS_pwrite64, entry->fd, entry->bytes + (at - entry->offset), old_end - at, at),
                             (long)(old_end - at));
        if (next > old_end && next <= (uint64_t)st.st_size) {
            g_autofree uint8_t *zeros = g_malloc0(next - old_end);

            ck_assert_int_eq(syscall(SYS_pwrite64, entry->fd, zeros, next - old_end, old_end), (long)(next - old_end));
        }
    }
    /* If the file is longer than this write made it, later growth was kept, and the size remains. */
    if (size < (uint64_t)st.st_size && (uint64_t)st.st_size == end)
        ck_assert_int_eq(syscall(SYS_ftruncate, entry->fd, size), 0);
}

static void undo_removed(const struct entry *entry, const char *path)
{
    char link[32];

    if (entry->aside)
        ck_assert_int_eq(syscall(SYS_renameat2, AT_FDCWD, entry->aside, AT_FDCWD, path, 0), 0);
    if (entry->linked) {
        snprintf(link, sizeof(link), "/proc/self/fd/%d", entry->fd);
        ck_assert_int_eq(syscall(SYS_linkat, AT_FDCWD, link, AT_FDCWD, path, AT_SYMLINK_FOLLOW), 0);
    }
}

static void undo_attrs(const struct entry *entry)
{
    struct stat st;

    if (real_stat(AT_FDCWD, entry->path, &st) < 0 || st.st_ino != entry->before.st_ino || S_ISLNK(st.st_mode))
        return;
    if (st.st_mode != entry->before.st_mode)
        ck_assert_int_eq(syscall(SYS_fchmodat, AT_FDCWD, entry->path, entry->before.st_mode & 07777), 0);
    if (st.st_uid != entry->before.st_uid || st.st_gid != entry->before.st_gid)
        ck_assert_int_eq(syscall(SYS_fchownat, AT_FDCWD, entry->path, entry->before.st_uid, entry->before.st_gid, 0), 0);
}

static void undo(const struct entry *entry)
{
    switch (entry->kind) {
    case MADE:
        if (syscall(SYS_unlinkat, AT_FDCWD, entry->path, 0) < 0)
            ck_assert_int_eq(syscall(SYS_unlinkat, AT_FDCWD, entry->path, AT_REMOVEDIR), 0);
        break;
    case REMOVED:
        undo_removed(entry, entry->path);
        break;
    case RENAMED:
    case EXCHANGED:
        ck_assert_int_eq(syscall(SYS_renameat2, AT_FDCWD, entry->other, AT_FDCWD, entry->path,
                                 entry->kind == EXCHANGED ? RENAME_EXCHANGE : 0), 0);
        undo_removed(entry, entry->other);
        break;
    case ATTRS:
        undo_attrs(entry);
        break;
    case XATTR:
        if (entry->bytes)
            ck_assert_int_eq(syscall(SYS_lsetxattr, entry->path, entry->other, entry->bytes, entry->length, 0), 0);
        else
            (void)!syscall(SYS_lremovexattr, entry->path, entry->other);
        break;
    case CUT:
        ck_assert_int_eq(syscall(SYS_ftruncate, entry->fd, entry->before.st_size), 0);
        if (entry->bytes)
            ck_assert_int_eq(syscall(SYS_pwrite64, entry->fd, entry->bytes, entry->length, entry->offset),
                             (long)entry->length);
        break;
    case WRITTEN:
        break;
    }
}

static void show(const struct shown *times)
{
    for (unsigned i = 0; i < shared->shown; i++)
        if (shared->inodes[i].ino == times->ino) {
            shared->inodes[i] = *times;
            return;
        }
    ck_assert_uint_lt(shared->shown, SHOWN_MAX);
    shared->inodes[shared->shown++] = *times;
}

static void find_ctimes(const char *path)
{
    g_autoptr(GDir) dir = g_dir_open(path, 0, NULL);
    const char *name;
    struct stat st;

    if (real_stat(AT_FDCWD, path, &st) == 0)
        for (unsigned i = 0; i < shared->shown; i++)
            if (shared->inodes[i].ino == st.st_ino)
                shared->inodes[i].now = st.st_ctim;
    if (!S_ISDIR(st.st_mode))
        return;
    while (dir && (name = g_dir_read_name(dir))) {
        g_autofree char *child = g_strdup_printf("%s/%s", path, name);

        find_ctimes(child);
    }
}

/* Notes the present times of inodes before calls are undone: times that no undone call changed remain the same. */
static void keep_times(void)
{
    for (unsigned i = entry_count; i-- > 0;)
        for (unsigned k = 0; k < entries[i].touched; k++) {
            struct shown times = {.ino = entries[i].times[k].ino};
            struct stat st;
            bool known = false;

            for (unsigned j = 0; j < shared->shown; j++)
                known |= shared->inodes[j].ino == times.ino;
            if (known || (entries[i].fd >= 0 ? real_stat(entries[i].fd, "", &st) < 0 || st.st_ino != times.ino : true))
                continue;
            times.mtime = st.st_mtim;
            times.ctime = st.st_ctim;
            show(&times);
        }
}

static void keep_times_below(const char *path)
{
    g_autoptr(GDir) dir = g_dir_open(path, 0, NULL);
    const char *name;
    struct stat st;

    if (real_stat(AT_FDCWD, path, &st) < 0)
        return;
    show(&(struct shown){.ino = st.st_ino, .mtime = st.st_mtim, .ctime = st.st_ctim});
    if (!S_ISDIR(st.st_mode))
        return;
    while (dir && (name = g_dir_read_name(dir))) {
        g_autofree char *child = g_strdup_printf("%s/%s", path, name);

        keep_times_below(child);
    }
}

static void cut_power(void)
{
    unsigned first = committed;

    disk.counts = disk.watches = false;
    if (disk.way == DISK_LOSE_BYTES || disk.way == DISK_LOSE_STORE)
        first = entry_count;
    else if (disk.way == DISK_LOSE_SOME && entry_count > committed)
        first += (disk.call * 7919u) % (entry_count - committed + 1);
    keep_times_below(disk.top);
    keep_times();
    for (unsigned i = 0; i < mapping_count; i++)
        if (!is_kept(mappings[i].ino, 0))
            ck_assert_int_eq(syscall(SYS_pwrite64, mappings[i].fd, mappings[i].bytes, mappings[i].length, 0),
                             (long)mappings[i].length);
    for (unsigned i = entry_count; i-- > 0;) {
        if (entries[i].kind == WRITTEN && !entries[i].synced)
            undo_written(&entries[i], i < first);
        if (i < first)
            continue;
        undo(&entries[i]);
        for (unsigned k = 0; k < entries[i].touched; k++)
            show(&entries[i].times[k]);
    }
    find_ctimes(disk.top);
}

/* ---- a call ---------------------------------------------------------------------------------- */

enum call_type { NAMES, BYTES, SYNC };

/*
 * How many bytes are written if the process is killed amid a write: the kernel checks for that between two pages.
 * 0: none or all.
 */
static size_t torn_length(uint64_t offset, size_t length)
{
    uint64_t at = (offset + length / 2 + PAGE - 1) / PAGE * PAGE;

    return at > offset && at < offset + length ? at - offset : 0;
}

/*
 * Returns 0: the caller makes the call; -1: the call fails, errno is set; 1: the caller makes a part of it and ends the
 * process. Or ends the process itself.
 */
static int call(enum call_type type, bool needs_room, const char *name, const char *path, const char *other)
{
    unsigned number;
    bool hit;

    /* The page cache outlives the process: an end before a sync has the same effect as one before the next call. */
    if ((disk.way == DISK_STOP && type == SYNC) || (disk.way == DISK_TORN && type != BYTES) ||
        (disk.way == DISK_FULL && !needs_room))
        return 0;
    pthread_mutex_lock(&lock);
    number = shared->calls++;
    hit = number == disk.call;
    if (hit)
        snprintf(shared->last, sizeof(shared->last), "%s %s%s%s", name, path + MIN(strlen(path), disk.length),
                 other ? " " : "", other ? other + MIN(strlen(other), disk.length) : "");
    if (hit && disk.way >= DISK_LOSE_ALL)
        cut_power();
    if (hit && (disk.way == DISK_STOP || disk.way >= DISK_LOSE_ALL))
        syscall(SYS_exit_group, STOPPED);
    pthread_mutex_unlock(&lock);
    if (hit && disk.way == DISK_TORN)
        return 1;
    if ((hit && disk.way == DISK_FAIL) || (number >= disk.call && (disk.way == DISK_FULL || disk.way == DISK_BROKEN))) {
        errno = disk.way == DISK_FULL ? ENOSPC : disk.way == DISK_FAIL && disk.trial->error ? disk.trial->error : EIO;
        return -1;
    }
    return 0;
}

/* As call(), for a write. If it returns 1, *ret_part is the number of bytes to write. */
static int call_write(const char *name, int fd, char path[PATH_SIZE], uint64_t offset, size_t length, size_t *ret_part)
{
    *path = 0;
    *ret_part = torn_length(offset, length);
    if (!disk.counts || (disk.way == DISK_TORN && *ret_part == 0) || !path_of_fd(fd, path))
        return 0;
    return call(BYTES, true, name, path, NULL);
}

static int call_fd(enum call_type type, bool needs_room, const char *name, int fd, char path[PATH_SIZE])
{
    *path = 0;
    return disk.counts && path_of_fd(fd, path) ? call(type, needs_room, name, path, NULL) : 0;
}

static int call_at(bool needs_room, const char *name, int dir, const char *relative, char path[PATH_SIZE])
{
    *path = 0;
    if (!disk.counts)
        return 0;
    if (path_at(dir, relative, path))
        return call(NAMES, needs_room, name, path, NULL);
    *path = 0;
    return 0;
}

/* ---- the 256 directories of a store ------------------------------------------------------------ */

/*
 * Most of the time of a trial would be spent on creating and removing these, so a trial leaves them to the next one. They
 * are empty then, and a store that finds some missing makes them.
 */
static struct {
    char path[PATH_SIZE];
    pid_t owner; /* 0: there are none */
} shards;

/* Removes the entries of a shard. False: it is not a directory, or not empty now. */
static bool empty_shard(int objects, const char *name)
{
    int fd = (int)syscall(SYS_openat, objects, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    DIR *dir = fd < 0 ? NULL : fdopendir(fd);
    struct dirent *entry;
    bool is_empty = dir;

    while (dir && (entry = readdir(dir)))
        if (strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0)
            is_empty &= syscall(SYS_unlinkat, fd, entry->d_name, entry->d_type == DT_DIR ? AT_REMOVEDIR : 0) == 0;
    if (dir)
        closedir(dir);
    return is_empty;
}

static bool empty_shards(const char *path)
{
    DIR *dir = opendir(path);
    struct dirent *entry;
    bool is_empty = dir;

    while (is_empty && (entry = readdir(dir)))
        if (strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0)
            is_empty = empty_shard(dirfd(dir), entry->d_name);
    if (dir)
        closedir(dir);
    return is_empty;
}

void disk_keep_shards(const char *store)
{
    g_autofree char *path = g_strdup_printf("%s/objects", store);
    struct stat st;

    if (shards.owner == 0 && *shards.path && real_stat(AT_FDCWD, path, &st) == 0 && S_ISDIR(st.st_mode) &&
        (st.st_mode & 07777) == 0700 && empty_shards(path) &&
        syscall(SYS_renameat2, AT_FDCWD, path, AT_FDCWD, shards.path, 0) == 0)
        shards.owner = getpid();
}

/* True: the directory of a store has them now. */
static bool use_shards(int dir)
{
    if (shards.owner != getpid() || syscall(SYS_renameat2, AT_FDCWD, shards.path, dir, "objects", RENAME_NOREPLACE) < 0)
        return false;
    shards.owner = 0;
    return true;
}

static void drop_shards(void)
{
    for (unsigned i = 0; shards.owner == getpid() && i < 256; i++) {
        g_autofree char *path = g_strdup_printf("%s/%02x", shards.path, i);

        syscall(SYS_unlinkat, AT_FDCWD, path, AT_REMOVEDIR);
    }
    if (shards.owner == getpid())
        ck_assert_int_eq(syscall(SYS_unlinkat, AT_FDCWD, shards.path, AT_REMOVEDIR), 0);
    memset(&shards, 0, sizeof(shards));
}

/* ---- names ----------------------------------------------------------------------------------- */

static int open_as(int dir, const char *name, int flags, mode_t mode)
{
    char path[PATH_SIZE];
    struct stat st;
    bool makes = false;
    int fd;

    if (disk.counts && (flags & (O_CREAT | O_TRUNC) || (flags & O_TMPFILE) == O_TMPFILE) && path_at(dir, name, path)) {
        bool is_there = (flags & O_TMPFILE) != O_TMPFILE && real_stat(AT_FDCWD, path, &st) == 0;

        makes = !is_there;
        if ((makes || flags & O_TRUNC) && call(NAMES, makes, "open", path, NULL) < 0)
            return -1;
        if (is_power() && is_there && flags & O_TRUNC) {
            int own = (int)syscall(SYS_openat, AT_FDCWD, path, O_RDWR | O_CLOEXEC);

            note_bytes(CUT, own, path, 0, UINT64_MAX);
            syscall(SYS_close, own);
        }
    }
    if (makes && is_power() && (flags & O_TMPFILE) != O_TMPFILE) {
        note_made(path);
        fd = (int)syscall(SYS_openat, dir, name, flags, mode);
        if (fd < 0)
            entry_drop();
        return fd;
    }
    return (int)syscall(SYS_openat, dir, name, flags, mode);
}

int openat(int dir, const char *name, int flags, ...)
{
    va_list list;
    mode_t mode;

    va_start(list, flags);
    mode = flags & (O_CREAT | O_TMPFILE) ? va_arg(list, mode_t) : 0;
    va_end(list);
    return open_as(dir, name, flags, mode);
}

int open(const char *name, int flags, ...)
{
    va_list list;
    mode_t mode;

    va_start(list, flags);
    mode = flags & (O_CREAT | O_TMPFILE) ? va_arg(list, mode_t) : 0;
    va_end(list);
    return open_as(AT_FDCWD, name, flags, mode);
}

int mkdirat(int dir, const char *name, mode_t mode)
{
    char path[PATH_SIZE];
    int r;

    if (disk.prepares && strcmp(name, "objects") == 0 && use_shards(dir))
        return 0;
    if (call_at(true, "mkdir", dir, name, path) < 0)
        return -1;
    if (*path && is_power())
        note_made(path);
    r = (int)syscall(SYS_mkdirat, dir, name, mode);
    if (r < 0 && *path && is_power())
        entry_drop();
    return r;
}

int mkdir(const char *name, mode_t mode)
{
    return mkdirat(AT_FDCWD, name, mode);
}

int mknodat(int dir, const char *name, mode_t mode, dev_t device)
{
    char path[PATH_SIZE];
    int r;

    if (call_at(true, "mknod", dir, name, path) < 0)
        return -1;
    if (*path && is_power())
        note_made(path);
    r = (int)syscall(SYS_mknodat, dir, name, mode, device);
    if (r < 0 && *path && is_power())
        entry_drop();
    return r;
}

int symlinkat(const char *target, int dir, const char *name)
{
    char path[PATH_SIZE];
    int r;

    if (call_at(true, "symlink", dir, name, path) < 0)
        return -1;
    if (*path && is_power())
        note_made(path);
    r = (int)syscall(SYS_symlinkat, target, dir, name);
    if (r < 0 && *path && is_power())
        entry_drop();
    return r;
}

int linkat(int old_dir, const char *old_name, int new_dir, const char *new_name, int flags)
{
    char path[PATH_SIZE], from[PATH_SIZE] = "";
    int r;

    if (call_at(true, "link", new_dir, new_name, path) < 0)
        return -1;
    if (*path && is_power()) {
        path_at(old_dir, old_name, from);
        note_linked(from, path);
    }
    r = (int)syscall(SYS_linkat, old_dir, old_name, new_dir, new_name, flags);
    if (r < 0 && *path && is_power())
        entry_drop();
    return r;
}

int link(const char *from, const char *to)
{
    return linkat(AT_FDCWD, from, AT_FDCWD, to, 0);
}

int unlinkat(int dir, const char *name, int flags)
{
    char path[PATH_SIZE];
    struct stat st;
    int r;

    if (call_at(false, "unlink", dir, name, path) < 0)
        return -1;
    if (!*path || !is_power() || real_stat(AT_FDCWD, path, &st) < 0 || S_ISDIR(st.st_mode) != !!(flags & AT_REMOVEDIR))
        return (int)syscall(SYS_unlinkat, dir, name, flags);
    if (flags & AT_REMOVEDIR) {
        g_autoptr(GDir) entries_of = g_dir_open(path, 0, NULL);

        if (entries_of && g_dir_read_name(entries_of))
            return errno = ENOTEMPTY, -1;
    }
    touch_parent(entry_new(REMOVED, path), path);
    if (keep_removed(&entries[entry_count - 1], path))
        return 0;
    r = (int)syscall(SYS_unlinkat, dir, name, flags);
    if (r < 0)
        entry_drop();
    return r;
}

int unlink(const char *name)
{
    return unlinkat(AT_FDCWD, name, 0);
}

int rmdir(const char *name)
{
    return unlinkat(AT_FDCWD, name, AT_REMOVEDIR);
}

int renameat2(int old_dir, const char *old_name, int new_dir, const char *new_name, unsigned flags)
{
    char from[PATH_SIZE] = "", to[PATH_SIZE] = "";
    struct entry *entry;
    bool below;
    int r;

    if (!disk.counts)
        return (int)syscall(SYS_renameat2, old_dir, old_name, new_dir, new_name, flags);
    below = path_at(old_dir, old_name, from);
    below |= path_at(new_dir, new_name, to);
    if (below && call(NAMES, false, "rename", from, to) < 0)
        return -1;
    if (!below || !is_power())
        return (int)syscall(SYS_renameat2, old_dir, old_name, new_dir, new_name, flags);
    entry = entry_new(flags & RENAME_EXCHANGE ? EXCHANGED : RENAMED, from);
    entry->other = g_strdup(to);
    touch_path(entry, from);
    touch_parent(entry, from);
    touch_parent(entry, to);
    if (flags & RENAME_EXCHANGE)
        touch_path(entry, to);
    else if (!(flags & RENAME_NOREPLACE))
        keep_removed(entry, to);
    r = (int)syscall(SYS_renameat2, old_dir, old_name, new_dir, new_name, flags);
    if (r < 0) {
        int error = errno;

        if (entry->aside)
            undo_removed(entry, to);
        entry_drop();
        errno = error;
    }
    return r;
}

int renameat(int old_dir, const char *old_name, int new_dir, const char *new_name)
{
    return renameat2(old_dir, old_name, new_dir, new_name, 0);
}

int rename(const char *from, const char *to)
{
    return renameat2(AT_FDCWD, from, AT_FDCWD, to, 0);
}

/* ---- bytes ----------------------------------------------------------------------------------- */

ssize_t pwrite(int fd, const void *data, size_t length, off_t offset)
{
    char path[PATH_SIZE];
    size_t part;
    int r = call_write("pwrite", fd, path, (uint64_t)offset, length, &part);

    if (r < 0)
        return -1;
    if (*path && is_power())
        note_bytes(WRITTEN, fd, path, (uint64_t)offset, length);
    if (r > 0) {
        syscall(SYS_pwrite64, fd, data, part, offset);
        syscall(SYS_exit_group, STOPPED);
    }
    return syscall(SYS_pwrite64, fd, data, length, offset);
}

ssize_t write(int fd, const void *data, size_t length)
{
    char path[PATH_SIZE];
    off_t offset = disk.counts ? lseek(fd, 0, fcntl(fd, F_GETFL) & O_APPEND ? SEEK_END : SEEK_CUR) : 0;
    size_t part;
    int r = call_write("write", fd, path, (uint64_t)offset, length, &part);

    if (r < 0)
        return -1;
    if (*path && is_power())
        note_bytes(WRITTEN, fd, path, (uint64_t)offset, length);
    if (r > 0) {
        syscall(SYS_write, fd, data, part);
        syscall(SYS_exit_group, STOPPED);
    }
    return syscall(SYS_write, fd, data, length);
}

static void write_part(int fd, const struct iovec *iov, int count, size_t length, off_t offset)
{
    for (int i = 0; i < count && length > 0; i++) {
        size_t n = MIN(length, iov[i].iov_len);

        syscall(SYS_pwrite64, fd, iov[i].iov_base, n, offset);
        offset += (off_t)n;
        length -= n;
    }
}

ssize_t pwritev(int fd, const struct iovec *iov, int count, off_t offset)
{
    char path[PATH_SIZE];
    size_t length = 0, part;
    int r;

    for (int i = 0; i < count; i++)
        length += iov[i].iov_len;
    r = call_write("pwritev", fd, path, (uint64_t)offset, length, &part);
    if (r < 0)
        return -1;
    if (*path && is_power())
        note_bytes(WRITTEN, fd, path, (uint64_t)offset, length);
    if (r > 0) {
        write_part(fd, iov, count, part, offset);
        syscall(SYS_exit_group, STOPPED);
    }
    return syscall(SYS_pwritev, fd, iov, count, offset, 0);
}

ssize_t copy_file_range(int from, off_t *from_at, int to, off_t *to_at, size_t length, unsigned flags)
{
    char path[PATH_SIZE];
    off_t offset = to_at ? *to_at : disk.counts ? lseek(to, 0, SEEK_CUR) : 0;
    size_t part;
    int r = call_write("copy_file_range", to, path, (uint64_t)offset, length, &part);

    if (r < 0)
        return -1;
    if (*path && is_power())
        note_bytes(WRITTEN, to, path, (uint64_t)offset, length);
    if (r > 0) {
        syscall(SYS_copy_file_range, from, from_at, to, to_at, part, flags);
        syscall(SYS_exit_group, STOPPED);
    }
    return syscall(SYS_copy_file_range, from, from_at, to, to_at, length, flags);
}

int ftruncate(int fd, off_t length)
{
    char path[PATH_SIZE];

    if (call_fd(NAMES, false, "ftruncate", fd, path) < 0)
        return -1;
    if (*path && is_power())
        note_bytes(CUT, fd, path, (uint64_t)length, UINT64_MAX - (uint64_t)length);
    return (int)syscall(SYS_ftruncate, fd, length);
}

int fallocate(int fd, int mode, off_t offset, off_t length)
{
    char path[PATH_SIZE];

    if (call_fd(NAMES, true, "fallocate", fd, path) < 0)
        return -1;
    if (*path && is_power())
        note_bytes(CUT, fd, path, (uint64_t)offset, (uint64_t)length);
    return (int)syscall(SYS_fallocate, fd, mode, offset, length);
}

int posix_fallocate(int fd, off_t offset, off_t length)
{
    return fallocate(fd, 0, offset, length) < 0 ? errno : 0;
}

int ioctl(int fd, unsigned long request, ...)
{
    char path[PATH_SIZE];
    va_list list;
    void *data;

    va_start(list, request);
    data = va_arg(list, void *);
    va_end(list);
    if (request == FICLONE || request == FICLONERANGE) {
        struct file_clone_range all = {0}, *range = request == FICLONERANGE ? data : &all;

        if (call_fd(BYTES, true, "clone", fd, path) < 0)
            return -1;
        if (*path && is_power())
            note_bytes(CUT, fd, path, range->dest_offset, range->src_length ? range->src_length : UINT64_MAX);
    } else if (request == FS_IOC_SETFLAGS || request == FS_IOC_FSSETXATTR) {
        if (call_fd(NAMES, false, "setflags", fd, path) < 0)
            return -1;
    }
    return (int)syscall(SYS_ioctl, fd, request, data);
}

/* ---- attributes ------------------------------------------------------------------------------ */

/* Before a change of attributes: as call(), and notes the present ones. */
static int before_attrs(const char *name, int fd, const char *relative)
{
    char path[PATH_SIZE];
    int r = relative ? call_at(false, name, fd, relative, path) : call_fd(NAMES, false, name, fd, path);

    if (r < 0)
        return -1;
    if (*path && is_power())
        note_attrs(relative ? -1 : fd, path);
    return 0;
}

int fchmod(int fd, mode_t mode)
{
    return before_attrs("chmod", fd, NULL) < 0 ? -1 : (int)syscall(SYS_fchmod, fd, mode);
}

int chmod(const char *name, mode_t mode)
{
    return before_attrs("chmod", AT_FDCWD, name) < 0 ? -1 : (int)syscall(SYS_fchmodat, AT_FDCWD, name, mode);
}

int fchown(int fd, uid_t uid, gid_t gid)
{
    return before_attrs("chown", fd, NULL) < 0 ? -1 : (int)syscall(SYS_fchown, fd, uid, gid);
}

int fchownat(int dir, const char *name, uid_t uid, gid_t gid, int flags)
{
    return before_attrs("chown", dir, *name ? name : NULL) < 0
               ? -1 : (int)syscall(SYS_fchownat, dir, name, uid, gid, flags);
}

int futimens(int fd, const struct timespec times[2])
{
    return before_attrs("utimens", fd, NULL) < 0 ? -1 : (int)syscall(SYS_utimensat, fd, NULL, times, 0);
}

int utimensat(int dir, const char *name, const struct timespec times[2], int flags)
{
    return before_attrs("utimens", dir, *name ? name : NULL) < 0
               ? -1 : (int)syscall(SYS_utimensat, dir, name, times, flags);
}

static int before_xattr(const char *call_name, int fd, const char *relative, const char *name)
{
    char path[PATH_SIZE];
    int r = relative ? call_at(false, call_name, AT_FDCWD, relative, path) : call_fd(NAMES, false, call_name, fd, path);

    if (r < 0)
        return -1;
    if (*path && is_power())
        note_xattr(path, name);
    return 0;
}

int fsetxattr(int fd, const char *name, const void *value, size_t size, int flags)
{
    return before_xattr("setxattr", fd, NULL, name) < 0
               ? -1 : (int)syscall(SYS_fsetxattr, fd, name, value, size, flags);
}

int setxattr(const char *path, const char *name, const void *value, size_t size, int flags)
{
    return before_xattr("setxattr", -1, path, name) < 0
               ? -1 : (int)syscall(SYS_setxattr, path, name, value, size, flags);
}

int fremovexattr(int fd, const char *name)
{
    return before_xattr("removexattr", fd, NULL, name) < 0 ? -1 : (int)syscall(SYS_fremovexattr, fd, name);
}

/* ---- syncs: they only change the state of the model ------------------------------------------ */

static int sync_as(const char *name, int fd, bool times)
{
    char path[PATH_SIZE];
    struct stat st;

    if (call_fd(SYNC, false, name, fd, path) < 0)
        return -1;
    if (*path && is_power() && real_stat(fd, "", &st) == 0)
        note_sync(st.st_ino, times);
    return 0;
}

int fsync(int fd)
{
    return sync_as("fsync", fd, true);
}

int fdatasync(int fd)
{
    return sync_as("fdatasync", fd, false);
}

int syncfs(int fd)
{
    char path[PATH_SIZE];

    if (call_fd(SYNC, false, "syncfs", fd, path) < 0)
        return -1;
    if (*path && is_power())
        note_sync(0, true);
    return 0;
}

int sync_file_range(int fd, off_t offset, off_t length, unsigned flags)
{
    char path[PATH_SIZE];
    struct stat st;

    if (call_fd(SYNC, false, "sync_file_range", fd, path) < 0)
        return -1;
    if (!*path || !is_power() || !(flags & SYNC_FILE_RANGE_WAIT_AFTER) || real_stat(fd, "", &st) < 0)
        return 0;
    for (unsigned i = 0; i < entry_count; i++)
        if (entries[i].kind == WRITTEN && is_of(&entries[i], st.st_ino))
            entries[i].written = entry_count;
    return 0;
}

void *mmap(void *at, size_t length, int protection, int flags, int fd, off_t offset)
{
    char path[PATH_SIZE], link[32];
    struct stat st;

    if (disk.watches && fd >= 0 && protection & PROT_WRITE && flags & MAP_SHARED && path_of_fd(fd, path) &&
        real_stat(fd, "", &st) == 0) {
        ck_assert_uint_lt(mapping_count, MAPPINGS_MAX);
        snprintf(link, sizeof(link), "/proc/self/fd/%d", fd);
        mappings[mapping_count].ino = st.st_ino;
        mappings[mapping_count].fd = (int)syscall(SYS_openat, AT_FDCWD, link, O_RDWR | O_CLOEXEC);
        mappings[mapping_count].length = (size_t)st.st_size;
        mappings[mapping_count].bytes = g_malloc((size_t)st.st_size);
        keep_mapping(mapping_count++);
    }
    /* NOLINTNEXTLINE: a pointer, from an integer */
    return (void *)syscall(SYS_mmap, at, length, protection, flags, fd, offset);
}

/* ---- times after a power cut ----------------------------------------------------------------- */

static const struct shown *shown_of(ino_t ino, struct timespec ctime)
{
    for (unsigned i = 0; shared && i < shared->shown; i++) {
        const struct shown *shown = &shared->inodes[i];

        if (shown->ino == ino && shown->now.tv_sec == ctime.tv_sec && shown->now.tv_nsec == ctime.tv_nsec)
            return shown;
    }
    return NULL;
}

static int stat_as(int dir, const char *name, struct stat *st, int flags)
{
    const struct shown *shown;

    if (syscall(SYS_newfstatat, dir, name, st, flags) < 0)
        return -1;
    shown = shown_of(st->st_ino, st->st_ctim);
    if (shown) {
        st->st_mtim = shown->mtime;
        st->st_ctim = shown->ctime;
    }
    return 0;
}

int fstat(int fd, struct stat *st)
{
    return stat_as(fd, "", st, AT_EMPTY_PATH);
}

int fstatat(int dir, const char *name, struct stat *st, int flags)
{
    return stat_as(dir, name, st, flags);
}

int stat(const char *name, struct stat *st)
{
    return stat_as(AT_FDCWD, name, st, 0);
}

int lstat(const char *name, struct stat *st)
{
    return stat_as(AT_FDCWD, name, st, AT_SYMLINK_NOFOLLOW);
}

int statx(int dir, const char *name, int flags, unsigned mask, struct statx *ret)
{
    const struct shown *shown;

    if (syscall(SYS_statx, dir, name, flags, mask, ret) < 0)
        return -1;
    shown = shown_of(ret->stx_ino, (struct timespec){.tv_sec = ret->stx_ctime.tv_sec, .tv_nsec = ret->stx_ctime.tv_nsec});
    if (shown) {
        ret->stx_mtime = (struct statx_timestamp){.tv_sec = shown->mtime.tv_sec, .tv_nsec = (unsigned)shown->mtime.tv_nsec};
        ret->stx_ctime = (struct statx_timestamp){.tv_sec = shown->ctime.tv_sec, .tv_nsec = (unsigned)shown->ctime.tv_nsec};
    }
    return 0;
}

/* In trials of power cuts the file system counts as XFS, which the store knows to commit changes in order. */
int fstatfs(int fd, struct statfs *fs)
{
    char path[PATH_SIZE];

    if (syscall(SYS_fstatfs, fd, fs) < 0)
        return -1;
    if (disk.trial && disk.way >= DISK_LOSE_ALL && path_of_fd(fd, path))
        fs->f_type = XFS_SUPER_MAGIC;
    return 0;
}

/* ---- the loop -------------------------------------------------------------------------------- */

static const char *const ways[DISK_WAYS] = {"stopped", "torn", "failed once", "full", "broken", "all unsynced lost",
                                            "unsynced bytes lost", "some unsynced lost",
                                            "unsynced bytes of the store lost"};

static void work(void)
{
    static const struct rlimit many = {.rlim_cur = 4096, .rlim_max = 4096};

    disk.watches = disk.way >= DISK_LOSE_ALL;
    if (disk.watches) {
        entries = g_new0(struct entry, ENTRIES_MAX);
        (void)!setrlimit(RLIMIT_NOFILE, &many);
    }
    if (disk.trial->begin)
        disk.trial->begin();
    for (unsigned i = 0; i < mapping_count; i++)
        keep_mapping(i);
    disk.counts = true;
    shared->result = disk.trial->act();
    disk.counts = false;
    syscall(SYS_exit_group, 0);
}

static bool run(const struct disk_trial *trial, enum disk_way way, unsigned number)
{
    g_autofree char *at = NULL;
    struct disk_end end = {.way = way, .call = number};
    int status;
    pid_t child;

    disk.trial = trial;
    disk.way = way;
    disk.call = number;
    shared->calls = shared->shown = 0;
    shared->result = 0;
    snprintf(shared->last, sizeof(shared->last), "the end");
    *disk.top = 0;
    disk.length = 0;
    disk.prepares = true;
    snprintf(disk.top, sizeof(disk.top), "%s", trial->prepare());
    disk.prepares = false;
    disk.length = strlen(disk.top);
    snprintf(disk.aside, sizeof(disk.aside), "%s-aside", disk.top);
    if (way >= DISK_LOSE_ALL)
        ck_assert_int_eq(mkdir(disk.aside, 0700), 0);
    fflush(NULL);
    child = fork();
    ck_assert_int_ge(child, 0);
    if (child == 0)
        work();
    ck_assert_int_eq(waitpid(child, &status, 0), child);
    at = g_strdup_printf("%s, %s at call %u (%s)", trial->name, ways[way], number, shared->last);
    ck_assert_msg(WIFEXITED(status) && (WEXITSTATUS(status) == 0 || WEXITSTATUS(status) == STOPPED),
                  "%s: the work ended with status %d", at, status);
    end.ended = WEXITSTATUS(status) != STOPPED && number >= shared->calls;
    end.result = shared->result;
    end.at = at;
    ck_assert_msg(!end.ended || end.result == 0, "%s: undisturbed, it returned %d", at, end.result);
    trial->check(&end);
    trial->clean();
    if (way >= DISK_LOSE_ALL) {
        for (unsigned i = 0; i < ENTRIES_MAX; i++) {
            g_autofree char *path = g_strdup_printf("%s/%u", disk.aside, i);

            if (remove(path) < 0)
                break;
        }
        ck_assert(remove(disk.aside) == 0 || errno == ENOENT);
    }
    return end.ended;
}

unsigned disk_each_stop(const struct disk_trial *trial)
{
    unsigned runs = 0, stride = (unsigned)amount(1, 12), step;
    const char *base;
    bool is_dense;

    if (!shared) {
        /* NOLINTNEXTLINE: a pointer, from an integer */
        shared = (void *)syscall(SYS_mmap, NULL, sizeof(*shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
        ck_assert_ptr_ne(shared, MAP_FAILED);
    }
    base = g_getenv("WAYBACK_TEST_DIR");
    snprintf(shards.path, sizeof(shards.path), "%s/wayback-shards-%d", base ? base : "/var/tmp", getpid());
    run(trial, DISK_STOP, UINT_MAX);
    for (enum disk_way way = 0; way < DISK_WAYS; way++) {
        if (!((trial->ways ? trial->ways : DISK_KILLS) & 1u << way))
            continue;
        is_dense = way == DISK_STOP || way == DISK_LOSE_ALL || way == DISK_LOSE_BYTES;
        step = stride * MAX(is_dense ? trial->dense_stride : trial->stride, 1);
        for (unsigned number = way % step; !run(trial, way, number); number += step)
            runs++;
    }
    drop_shards();
    return runs;
}

int disk_run(const char *suite, const TTest *test, int count, const char *(*name_of)(int i))
{
    Suite *all = suite_create(suite);
    SRunner *runner;
    int failed;

    for (int i = 0; i < count; i++) {
        TCase *tcase = tcase_create(name_of(i));

        tcase_set_timeout(tcase, 500);
        tcase_add_loop_test(tcase, test, i, i + 1);
        suite_add_tcase(all, tcase);
    }
    runner = srunner_create(all);
    srunner_run_all(runner, CK_ENV);
    failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
