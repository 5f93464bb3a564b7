/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "base/dir.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

DIR *wb_opendir_at(int dir_fd, const char *name)
{
    int fd = openat(dir_fd, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);

    return fd < 0 ? NULL : wb_opendir_of(fd);
}

DIR *wb_opendir_of(int fd)
{
    DIR *dir = fdopendir(fd);
    int error = errno;

    if (dir)
        return dir;
    close(fd);
    errno = error;
    return NULL;
}

bool wb_next_entry(DIR *dir, struct dirent **entry, int *result)
{
    while (*result == 0) {
        errno = 0;
        *entry = readdir(dir);
        if (*entry && !wb_is_dots((*entry)->d_name))
            return true;
        if (!*entry && errno == 0)
            return false;
        *result = *entry ? 0 : -errno;
    }
    return false;
}

bool wb_is_dots(const char *name)
{
    return strcmp(name, ".") == 0 || strcmp(name, "..") == 0;
}
