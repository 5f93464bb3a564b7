/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "store/folder.h"

#include "base/cleanup.h"
#include "format/format.h"
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>

int wb_folder_each(int dir_fd, unsigned folder, int (*take)(void *data, int fd, const char *name), void *data)
{
    _cleanup_closedir_ DIR *stream = NULL;
    char path[sizeof(WB_OBJECTS_NAME) + 4];
    struct dirent *entry;
    int fd, r = 0;

    snprintf(path, sizeof(path), WB_OBJECTS_NAME "/%02x", folder & 0xff);
    fd = openat(dir_fd, path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (fd < 0)
        return errno == ENOENT ? 0 : -errno;
    stream = fdopendir(fd);
    if (!stream) {
        r = -errno;
        close(fd);
        return r;
    }
    for (errno = 0; r == 0 && (entry = readdir(stream)); errno = 0)
        r = take(data, fd, entry->d_name);
    return r != 0 ? r : -errno;
}
