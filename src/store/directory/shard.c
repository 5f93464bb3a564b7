/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "store/directory/shard.h"

#include "base/cleanup.h"
#include "base/dir.h"
#include "format/format.h"
#include <errno.h>
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
