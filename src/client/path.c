/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "client/path.h"

#include "client/fd.h"
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

/* Appends the components of `rest` to `path` as text; "." and ".." are resolved. */
static void append_text(GString *path, const char *rest)
{
    g_auto(GStrv) parts = g_strsplit(rest, "/", -1);

    for (char **part = parts; *part; part++) {
        if (!**part || strcmp(*part, ".") == 0)
            continue;
        if (strcmp(*part, "..") == 0) {
            char *slash = strrchr(path->str, '/');

            g_string_truncate(path, slash ? (gsize)(slash - path->str) : 0);
        } else {
            g_string_append_printf(path, "/%s", *part);
        }
    }
}

/* Of the mount of another user, not even root may get more than the device. 0, or -1 and errno. */
static int identify(int fd, const char *path, struct statx *ret)
{
    int flags = *path ? 0 : AT_EMPTY_PATH;

    if (statx(fd, path, flags, STATX_INO, ret) == 0)
        return 0;
    return errno == EACCES ? statx(fd, path, flags, 0, ret) : -1;
}

/*
 * realpath(3), as the kernel walks the path. NULL with errno: EXDEV if the object there has no such path for the
 * caller, because a link in /proc leads into another mount namespace; ELOOP (`careful`, for directories) if there is a
 * link that is not of root or the caller.
 */
static char *real_path_once(const char *path, bool careful)
{
    char proc[WB_FD_PATH_MAX], real[PATH_MAX];
    _cleanup_fd_ int fd = careful ? wb_open_named_dir(path) : open(path, O_PATH | O_CLOEXEC);
    struct statx is, named;
    ssize_t n;

    if (fd < 0) {
        errno = careful ? -fd : errno;
        return NULL;
    }
    if (identify(fd, "", &is) < 0)
        return NULL;
    n = readlink(wb_fd_proc_path(fd, proc), real, sizeof(real) - 1);
    if (n < 0)
        return careful ? NULL : realpath(path, NULL);
    real[n] = '\0';
    if (identify(AT_FDCWD, real, &named) < 0 || is.stx_dev_major != named.stx_dev_major ||
        is.stx_dev_minor != named.stx_dev_minor || is.stx_ino != named.stx_ino) {
        errno = EXDEV;
        return NULL;
    }
    return strdup(real);
}

/* A directory on the way may be renamed between the look at the object and that at its path. */
#define RENAMED_TRIES 100

static char *real_path(const char *path, bool careful)
{
    char *real = NULL;

    for (unsigned tries = 0; tries < RENAMED_TRIES && !real; tries++) {
        real = real_path_once(path, careful);
        if (!real && errno != EXDEV)
            break;
    }
    return real;
}

/* getcwd(3), which finds a path even if the directory is in another mount namespace: one that leads elsewhere here. */
static char *current_directory(void)
{
    char path[PATH_MAX];

    if (syscall(SYS_getcwd, path, sizeof(path)) < 0)
        return NULL;
    if (path[0] == '/')
        return strdup(path);
    errno = ENOENT;
    return NULL;
}

/* Relative paths by the path of the current directory, which a mount may cover. free(3). */
static char *full_path(const char *path)
{
    g_autofree char *here = *path == '/' ? NULL : current_directory();
    char *full;

    if (*path == '/')
        return strdup(path);
    return here && asprintf(&full, "%s/%s", here, path) >= 0 ? full : NULL;
}

char *wb_path_real(const char *path)
{
    g_autofree char *full = full_path(path);

    return full ? real_path(full, true) : NULL;
}

const char *wb_path_error_text(int error)
{
    if (error == ELOOP)
        return "the path contains a symbolic link of another user (or too many links); use the real path";
    if (error == EXDEV)
        return "the path leads through /proc to a place that has another path here, or none (another mount namespace, "
               "or a deleted directory); use its path";
    return "the current directory was removed; change to another one or use an absolute path";
}

/* real_path of the longest part that exists, and the rest as text. "/" is "". NULL with ELOOP or EXDEV. */
static GString *resolve(const char *path, bool careful)
{
    g_autofree char *head = g_strdup(path);
    size_t length = strlen(head);

    for (;;) {
        const char *part = length > 0 ? head : "/";
        char *real = real_path(part, careful);
        GString *result;

        if (!real && ((careful && errno == ELOOP) || errno == EXDEV))
            return NULL;

        if (real) {
            result = g_string_new(strcmp(real, "/") == 0 ? "" : real);
            free(real);
            append_text(result, path + length);
            return result;
        }
        if (length == 0)
            return g_string_new("");
        while (length > 0 && head[length - 1] == '/')
            length--;
        while (length > 0 && head[length - 1] != '/')
            length--;
        head[length] = '\0';
    }
}

static char *absolute(const char *path, bool careful)
{
    g_autofree char *full = full_path(path);
    const char *last;
    GString *result;

    if (!full)
        return NULL;
    last = strrchr(full, '/') + 1;
    if (!*last || strcmp(last, ".") == 0 || strcmp(last, "..") == 0) {
        result = resolve(full, careful);
    } else {
        g_autofree char *parent = g_strndup(full, (gsize)(last - full));

        result = resolve(parent, careful);
        if (result)
            append_text(result, last);
    }
    if (!result)
        return NULL;
    if (result->len == 0)
        g_string_append_c(result, '/');
    return g_string_free(result, FALSE);
}

char *wb_path_absolute(const char *path)
{
    return absolute(path, false);
}

char *wb_path_to_change(const char *path)
{
    return absolute(path, true);
}

bool wb_path_below(const char *path, const char *top, const char **rest)
{
    size_t length = strlen(top);

    if (length == 0) { /* relative to what both are relative to */
        if (rest)
            *rest = path;
        return true;
    }
    while (length > 0 && top[length - 1] == '/')
        length--;
    if (strncmp(path, top, length) != 0 || (path[length] != '/' && path[length] != '\0'))
        return false;
    path += length;
    while (*path == '/')
        path++;
    if (rest)
        *rest = path;
    return true;
}

char *wb_path_join(const char *a, const char *b)
{
    if (!*a || !*b)
        return g_strdup(*a ? a : b);
    return g_strdup_printf("%s/%s", a, b);
}

char *wb_path_parent(const char *path, const char **name)
{
    const char *slash = strrchr(path, '/');

    if (name)
        *name = slash ? slash + 1 : path;
    return slash ? g_strndup(path, (gsize)(slash - path)) : g_strdup("");
}
