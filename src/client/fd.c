/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "client/fd.h"

#include "base/cleanup.h"
#include "base/dir.h"
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/sysmacros.h>

int wb_fd_open_parent(int dir_fd, const char *path, const char **ret_name)
{
    const char *slash = strrchr(path, '/');
    g_autofree char *parent = NULL;

    *ret_name = slash ? slash + 1 : *path ? path : ".";
    if (!slash)
        return wb_open_in_mount(dir_fd, "", O_PATH | O_DIRECTORY);
    parent = g_strndup(path, (size_t)(slash - path));
    return wb_open_in_mount(dir_fd, parent, O_PATH | O_DIRECTORY);
}

bool wb_fd_is_mount(int dir_fd, const char *name)
{
    struct statx st;
    struct stat dir;

    if (statx(dir_fd, name, AT_EMPTY_PATH | AT_SYMLINK_NOFOLLOW | AT_NO_AUTOMOUNT | AT_STATX_DONT_SYNC, 0, &st) < 0)
        return false;
    if (st.stx_attributes_mask & STATX_ATTR_MOUNT_ROOT)
        return st.stx_attributes & STATX_ATTR_MOUNT_ROOT;
    return *name && fstat(dir_fd, &dir) == 0 && makedev(st.stx_dev_major, st.stx_dev_minor) != dir.st_dev;
}

const char *wb_fd_proc_path(int fd, char path[WB_FD_PATH_MAX])
{
    snprintf(path, WB_FD_PATH_MAX, "/proc/self/fd/%d", fd);
    return path;
}

int wb_fd_write(int fd, const void *data, size_t length, int64_t offset)
{
    const char *at = data;

    while (length > 0) {
        ssize_t n = offset < 0 ? write(fd, at, length) : pwrite(fd, at, length, offset);

        if (n < 0) {
            if (errno == EINTR)
                continue;
            return -errno;
        }
        at += n;
        length -= (size_t)n;
        if (offset >= 0)
            offset += n;
    }
    return 0;
}

ssize_t wb_fd_read(int fd, void *data, size_t length, int64_t offset)
{
    char *at = data;
    size_t done = 0;

    while (done < length) {
        ssize_t n = pread(fd, at + done, length - done, offset + (int64_t)done);

        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return -errno;
        if (n == 0)
            break;
        done += (size_t)n;
    }
    return (ssize_t)done;
}

void wb_data_walk_begin(struct wb_data_walk *walk, int fd, int64_t size)
{
    *walk = (struct wb_data_walk){.fd = fd, .size = fd < 0 ? 0 : size};
    if (fd >= 0)
        sync_file_range(fd, 0, 0, SYNC_FILE_RANGE_WAIT_BEFORE | SYNC_FILE_RANGE_WRITE | SYNC_FILE_RANGE_WAIT_AFTER);
}

int64_t wb_data_walk_next(struct wb_data_walk *walk, int64_t offset)
{
    if (offset >= walk->size)
        return walk->size;
    if (offset < walk->end)
        return MAX(offset, walk->begin);
    walk->begin = lseek(walk->fd, offset, SEEK_DATA);
    if (walk->begin < 0) {
        /* A file system that cannot say has data everywhere. */
        walk->begin = errno == ENXIO ? walk->size : offset;
        walk->end = walk->size;
        return walk->begin;
    }
    walk->begin = CLAMP(walk->begin, offset, walk->size);
    walk->end = lseek(walk->fd, walk->begin, SEEK_HOLE);
    if (walk->end <= walk->begin)
        walk->end = walk->size;
    return walk->begin;
}

static int compare_names(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

/* The mount gives the highest bit to what is of the past, or leads there; in a directory of the
 * present that is its directory of snapshots only. */
#define OF_THE_PAST (UINT64_C(1) << 63)

GPtrArray *wb_fd_names(int fd)
{
    g_autoptr(GPtrArray) names = g_ptr_array_new_with_free_func(g_free);
    _cleanup_closedir_ DIR *stream = wb_opendir_at(fd, ".");
    struct dirent *entry;
    struct stat st;
    bool is_past;
    int r = 0;

    if (!stream)
        return NULL;
    is_past = fstat(dirfd(stream), &st) == 0 && (st.st_ino & OF_THE_PAST);
    while (wb_next_entry(stream, &entry, &r)) {
        if (is_past || !(entry->d_ino & OF_THE_PAST))
            g_ptr_array_add(names, g_strdup(entry->d_name));
    }
    if (r < 0) {
        errno = -r;
        return NULL;
    }
    g_ptr_array_sort(names, compare_names);
    return g_steal_pointer(&names);
}

int wb_fd_names_has(const GPtrArray *names, const char *name)
{
    return names->len > 0 && bsearch(&name, names->pdata, names->len, sizeof(*names->pdata),
                                     compare_names) != NULL;
}

bool wb_fd_has_mount(int dir_fd, const char *name)
{
    g_autoptr(GPtrArray) names = NULL;
    _cleanup_fd_ int fd = -1;

    if (wb_fd_is_mount(dir_fd, name))
        return true;
    fd = openat(dir_fd, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    names = fd < 0 ? NULL : wb_fd_names(fd);
    for (guint i = 0; names && i < names->len; i++) {
        if (wb_fd_has_mount(fd, names->pdata[i]))
            return true;
    }
    return false;
}

int wb_fd_remove_all(int dir_fd, const char *name)
{
    g_autoptr(GPtrArray) names = NULL;
    _cleanup_fd_ int fd = -1;
    int result = 0;

    if (unlinkat(dir_fd, name, 0) == 0)
        return 0;
    if (errno != EISDIR && errno != EPERM)
        return -errno;
    if (unlinkat(dir_fd, name, AT_REMOVEDIR) == 0)
        return 0;
    if (errno == ENOTDIR)
        return -EPERM;
    if (errno != ENOTEMPTY && errno != EEXIST)
        return -errno;
    if (wb_fd_is_mount(dir_fd, name))
        return -EXDEV;
    fd = openat(dir_fd, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (fd < 0)
        return -errno;
    if (wb_fd_is_mount(fd, ""))
        return -EXDEV;
    names = wb_fd_names(fd);
    if (!names)
        return -errno;
    for (guint i = 0; i < names->len; i++) {
        int r = wb_fd_remove_all(fd, names->pdata[i]);

        if (r < 0 && result == 0)
            result = r;
    }
    if (unlinkat(dir_fd, name, AT_REMOVEDIR) < 0 && result == 0)
        result = -errno;
    return result;
}
