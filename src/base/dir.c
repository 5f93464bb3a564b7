/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "base/dir.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

DIR *wb_opendir_at(int dir_fd, const char *name)
{
    int error, fd = openat(dir_fd, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    DIR *dir = fd < 0 ? NULL : fdopendir(fd);

    if (dir || fd < 0)
        return dir;
    error = errno;
    close(fd);
    errno = error;
    return NULL;
}

bool wb_is_dots(const char *name)
{
    return strcmp(name, ".") == 0 || strcmp(name, "..") == 0;
}
