/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "client/path.h"

#include "client/fd.h"
#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
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

/* realpath(3) of a directory, by links of root and of the caller alone: NULL with ELOOP if there are others. */
static char *real_path_of_dir(const char *path)
{
    char proc[WB_FD_PATH_MAX], real[PATH_MAX];
    _cleanup_fd_ int fd = wb_open_named_dir(path);
    ssize_t n = fd < 0 ? -1 : readlink(wb_fd_proc_path(fd, proc), real, sizeof(real) - 1);

    if (n < 0) {
        errno = fd < 0 ? -fd : errno;
        return NULL;
    }
    real[n] = '\0';
    return strdup(real);
}

/* realpath(3) of the longest part that exists, and the rest as text. "/" is "". NULL: a link of another user. */
static GString *resolve(const char *path, bool careful)
{
    g_autofree char *head = g_strdup(path);
    size_t length = strlen(head);

    for (;;) {
        const char *part = length > 0 ? head : "/";
        char *real = careful ? real_path_of_dir(part) : realpath(part, NULL);
        GString *result;

        if (!real && careful && errno == ELOOP)
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
    g_autofree char *full = NULL;
    const char *last;
    GString *result;

    if (*path == '/') {
        full = g_strdup(path);
    } else {
        char *here = getcwd(NULL, 0);

        if (!here)
            return NULL;
        full = g_strdup_printf("%s/%s", here, path);
        free(here);
    }
    last = strrchr(full, '/') + 1;
    if (!*last || strcmp(last, ".") == 0 || strcmp(last, "..") == 0) {
        result = resolve(full, careful);
    } else {
        g_autofree char *parent = g_strndup(full, (gsize)(last - full));

        result = resolve(parent, careful);
        if (result)
            append_text(result, last);
    }
    if (!result) {
        errno = ELOOP;
        return NULL;
    }
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
