/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "store/directory/shard.h"

#include "base/cleanup.h"
#include "base/dir.h"
#include "base/io.h"
#include "store/store.h"
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>

int wb_shard_each(int dir_fd, unsigned shard, int (*take)(void *data, int fd, const char *name), void *data)
{
    _cleanup_closedir_ DIR *dir = NULL;
    char path[sizeof(WB_OBJECTS_NAME) + 4];
    struct dirent *entry;
    int r = 0;

    snprintf(path, sizeof(path), WB_OBJECTS_NAME "/%02x", shard & 0xff);
    dir = wb_opendir_at(dir_fd, path);
    if (!dir)
        return errno == ENOENT ? 0 : -errno;
    while (wb_next_entry(dir, &entry, &r))
        r = take(data, dirfd(dir), entry->d_name);
    return r;
}

int wb_store_open_file_as_is(const struct wb_store *store, struct wb_object object, enum wb_object_file file,
                             int flags)
{
    bool buried = file == WB_FILE_DATA || file == WB_FILE_DIR;
    int fd, dir_fd = buried ? store->grave_fd : store->dir_fd;
    char path[WB_OBJECT_PATH_MAX];

    if (dir_fd < 0)
        return -ENOENT;
    wb_object_path(object, file, path);
    if (!buried)
        return wb_open_own(dir_fd, path, flags, 0600);
    /* The file belonged to a user, and may not be of the type that the records say: do not wait for a pipe. */
    fd = openat(dir_fd, path, flags | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY | O_CLOEXEC, 0600);
    return fd < 0 ? -errno : fd;
}
