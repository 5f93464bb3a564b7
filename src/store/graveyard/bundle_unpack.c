/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "store/graveyard/bundle.h"

#include "base/cleanup.h"
#include "base/io.h"
#include "store/inflight/spans.h"
#include <errno.h>
#include <fcntl.h>
#include <glib.h>
#include <stdio.h>
#include <string.h>

#define STEP (1u << 20)

/* Fills from the beginning to the end, so that at any time the bytes below the size are right (bundle.h). */
static int fill(const struct wb_bundle *bundle, const struct wb_bundle_member *member, int fd)
{
    g_autofree uint8_t *data = g_try_malloc(STEP);
    uint64_t offset = 0, end;
    bool is_hole;
    int r = 0;

    if (!data)
        return -ENOMEM;
    while (r == 0 && offset < member->size) {
        wb_bundle_run(bundle, member, offset, &is_hole, &end);
        if (!is_hole) {
            end = MIN(end, offset + STEP);
            r = wb_bundle_read(bundle, member, data, (size_t)(end - offset), offset);
            if (r == 0)
                r = wb_pwrite_full(fd, data, (size_t)(end - offset), offset);
        }
        offset = end;
    }
    if (r == 0 && ftruncate(fd, (off_t)member->size) < 0)
        r = -errno;
    return r == -EBADMSG ? -EIO : r;
}

static struct timespec time_of(int64_t when)
{
    int64_t seconds = when / 1000000000, rest = when % 1000000000;

    return rest < 0 ? (struct timespec){.tv_sec = seconds - 1, .tv_nsec = rest + 1000000000}
                    : (struct timespec){.tv_sec = seconds, .tv_nsec = rest};
}

/* Opens the file itself, and refuses any other object of that name. */
static int open_file(struct wb_store *store, struct wb_object object)
{
    _cleanup_close_ int fd = wb_grave_open(store, object, false, O_RDWR);
    struct wb_object found;
    int r;

    if (fd < 0)
        return fd;
    r = wb_object_stat(store, fd, NULL, &found, NULL, NULL);
    if (r < 0)
        return r;
    return wb_object_equal(found, object) ? wb_steal_fd(&fd) : -EIO;
}

static int unpack(const struct wb_bundle *bundle, const struct wb_bundle_member *member, int fd)
{
    struct timespec times[2] = {time_of(member->atime), time_of(member->mtime)};
    int r;

    /* Bytes left by an earlier attempt may not be on the disk. */
    r = ftruncate(fd, 0) < 0 ? -errno : fill(bundle, member, fd);
    if (r == 0 && (futimens(fd, times) < 0 || fsync(fd) < 0))
        r = -errno;
    if (r < 0 && ftruncate(fd, 0) == 0)
        futimens(fd, times);
    return r;
}

int wb_bundle_retire(int dir_fd, struct wb_object object)
{
    char from[WB_OBJECT_PATH_MAX], to[WB_OBJECT_PATH_MAX];
    _cleanup_close_ int dir = -1;

    wb_object_path(object, WB_FILE_BUNDLE, from);
    wb_object_path(object, WB_FILE_BUNDLE_OLD, to);
    if (renameat(dir_fd, from, dir_fd, to) < 0)
        return -errno;
    *strrchr(from, '/') = '\0';
    dir = openat(dir_fd, from, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    return dir < 0 ? -errno : wb_fsync_dir(dir);
}

int wb_bundle_unpack_into(int dir_fd, struct wb_object object, int fd)
{
    const struct wb_bundle_member *member;
    char path[WB_OBJECT_PATH_MAX];
    struct wb_bundle *bundle;
    int r;

    wb_object_path(object, WB_FILE_BUNDLE, path);
    r = wb_open_own(dir_fd, path, O_RDONLY, 0);
    if (r >= 0)
        r = wb_bundle_open_fd(r, &bundle);
    if (r < 0)
        return r == -ENOENT ? 0 : r == -EBADMSG ? -EIO : r;
    member = wb_bundle_find(bundle, object);
    /* The bundle's name may be new, and the file may be on another device. */
    r = !member ? -EIO : fsync(bundle->fd) < 0 ? -errno : unpack(bundle, member, fd);
    wb_bundle_free(bundle);
    return r < 0 ? r : wb_bundle_retire(dir_fd, object);
}

int wb_bundle_unpack(struct wb_store *store, struct wb_object object)
{
    WB_IN_SPAN(store);
    _cleanup_close_ int fd = -1;
    struct stat st;
    int r = wb_bundle_stat(store, object, WB_FILE_BUNDLE, &st);

    if (r != 0)
        return r == WB_ABSENT ? 0 : r;
    fd = open_file(store, object);
    return fd < 0 ? fd : wb_bundle_unpack_into(store->dir_fd, object, fd);
}
