/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "client/api/api.h"

#include "client/errno_text.h"
#include "client/fd.h"
#include "client/past_path.h"
#include "client/path.h"
#include "client/snapshots.h"
#include "wayback/quote.h"
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static _Thread_local char error_text[PATH_MAX + sizeof(struct wb_error)];

int wb_client_fail(const char *path, int error, const char *text)
{
    size_t used = 0;

    error_text[0] = '\0';
    if (path) {
        used = wb_quote_into(error_text, PATH_MAX, path);
        used += (size_t)snprintf(error_text + used, sizeof(error_text) - used, ": ");
    }
    wb_quote_into(error_text + used, sizeof(error_text) - used, text && *text ? text : wb_errno_text(error));
    return error;
}

const char *wb_error_text(void)
{
    return error_text;
}

const char *wb_library_version(void)
{
    return WAYBACK_VERSION;
}

int wb_open(const char *path, struct wb_client **ret)
{
    g_autoptr(GPtrArray) list = NULL;
    g_autofree char *absolute = wb_path_absolute(path);
    const struct wb_listed *listed;
    struct wb_client *client;
    struct wb_mount *mount;
    int error = 0;

    *ret = NULL;
    if (!absolute)
        return wb_client_fail(path, errno == EXDEV ? -EXDEV : -ENOENT, wb_path_error_text(errno));
    list = wb_listed_mounts();
    listed = wb_listed_of(list, absolute);
    if (!listed || !wb_listed_is_wayback(listed))
        return wb_client_fail(path, -ENOTTY, "not in a Wayback mount; mount the tree with 'wayback SRC MNT' and name "
                                             "the path below MNT");
    mount = wb_mount_open(listed, absolute, &error);
    if (!mount)
        return wb_client_fail(path, -error, NULL);
    if (!mount->hello.history) {
        wb_mount_free(mount);
        return wb_client_fail(path, -ENODATA, "mounted with history=none; mount it without that option to use its "
                                              "history");
    }
    client = g_new0(struct wb_client, 1);
    client->mount = mount;
    client->point = g_strdup(mount->point);
    *ret = client;
    return 0;
}

struct wb_client *wb_close(struct wb_client *client)
{
    if (client) {
        wb_mount_free(client->mount);
        g_free(client->point);
        g_free(client);
    }
    return NULL;
}

/* Whether no other mount lies on the path, which need not exist. 0, or -EXDEV, which is kept. */
static int check_mount(const struct wb_client *client, const char *path, const char *inside)
{
    g_autofree char *part = g_strdup(inside);

    for (;;) {
        _cleanup_fd_ int fd = wb_open_in_mount(client->mount->root_fd, part, O_PATH | O_NOFOLLOW);
        char *slash = strrchr(part, '/');

        if (fd == -EXDEV) {
            g_autofree char *text = g_strdup_printf("not in the mount %s: another file system is mounted on the path; "
                                                    "unmount it to use what it covers", client->point);

            return wb_client_fail(path, -EXDEV, text);
        }
        if (fd >= 0 || !*part)
            return 0;
        *(slash ? slash : part) = '\0';
    }
}

int wb_client_path(const struct wb_client *client, const char *path, bool change, char **ret)
{
    g_autofree char *absolute = change ? wb_path_to_change(path) : wb_path_absolute(path);
    const char *rest;

    *ret = NULL;
    if (!absolute)
        return wb_client_fail(path, errno == EXDEV || errno == ELOOP ? -errno : -ENOENT, wb_path_error_text(errno));
    if (!wb_path_below(absolute, client->point, &rest)) {
        g_autofree char *text = g_strdup_printf("not in the mount %s", client->point);

        return wb_client_fail(path, -EXDEV, text);
    }
    if (check_mount(client, path, rest) < 0)
        return -EXDEV;
    *ret = g_strdup(rest);
    return 0;
}

char *wb_client_whole(const struct wb_client *client, const char *path)
{
    return *path ? g_strdup_printf("%s/%s", strcmp(client->point, "/") == 0 ? "" : client->point, path)
                 : g_strdup(client->point);
}

int wb_client_give(void *to, size_t size, const void *from, size_t known)
{
    if (size < sizeof(size_t) * 2 || size > WB_CLIENT_SIZE_MAX)
        return wb_client_fail(NULL, -EINVAL, "the size of a result is not set (a fault of the program)");
    memset((char *)to + sizeof(size_t), 0, size - sizeof(size_t));
    memcpy((char *)to + sizeof(size_t), (const char *)from + sizeof(size_t), MIN(size, known) - sizeof(size_t));
    return 0;
}

int wb_client_info(struct wb_client *client, struct wb_client_info *info)
{
    struct wb_control_hello hello;
    struct wb_client_info known = {.at_sign = client->mount->at_sign, .point = client->point};
    int r = wb_mount_refresh(client->mount, &hello);

    if (r < 0)
        return wb_client_fail(client->point, r, NULL);
    known.flags = hello.read_only || hello.moment ? WB_CLIENT_READ_ONLY : 0;
    known.began = hello.created;
    known.now = hello.now;
    return wb_client_give(info, info->size, &known, sizeof(known));
}

int wb_client_time(const struct wb_client *client, const char *path, int64_t when,
                   const struct wb_control_hello *hello)
{
    char text[WB_WHEN_TEXT_MAX];
    struct wb_error why = {""};
    int r;

    if (when > hello->now)
        return wb_client_fail(path, -EINVAL, "the time is in the future");
    r = wb_moment_known(client->mount, wb_when_print_epoch(when, text), when, &why);
    return r < 0 ? wb_client_fail(path, r, why.text) : 0;
}

int wb_client_past(const struct wb_client *client, const char *path, int64_t when, char **ret)
{
    g_autofree char *inside = NULL;
    struct wb_control_hello hello;
    int r = wb_client_path(client, path, false, &inside);

    *ret = NULL;
    if (r < 0)
        return r;
    r = wb_mount_refresh(client->mount, &hello);
    if (r < 0)
        return wb_client_fail(path, r, NULL);
    r = wb_client_time(client, path, when, &hello);
    if (r < 0)
        return r;
    r = wb_moment_path(client->mount, inside, when, ret);
    return r < 0 ? wb_client_fail(path, r, r == -ENOENT ? "nothing was there at that time" : NULL) : 0;
}

/* ---- times --------------------------------------------------------------------------------------- */

int wb_time_resolve(struct wb_client *client, const char *path, const char *text, int64_t *ret)
{
    _cleanup_moment_ struct wb_moment moment = {0};
    g_autofree struct wb_control_snapshot *snapshot = NULL;
    g_autofree char *inside = NULL;
    struct wb_error why = {""};
    struct wb_control_hello hello;
    struct wb_time time;
    int r = wb_client_path(client, path, false, &inside);

    if (r < 0)
        return r;
    r = wb_mount_refresh(client->mount, &hello); /* for the clock of the store */
    if (r < 0)
        return wb_client_fail(path, r, NULL);
    text += *text == client->mount->at_sign;
    r = wb_time_find(client->mount, inside, text, &time, &snapshot);
    if (r == -ENODATA)
        return wb_client_fail(text, -EINVAL, "this snapshot does not cover the path; use its time instead");
    if (r < 0)
        return wb_client_fail(text, -EINVAL, "neither a time nor a snapshot here");
    if (time.kind != WB_TIME_INSTANT) {
        r = wb_moment_before(client->mount, inside, &time, &moment, &why);
        if (r < 0)
            return wb_client_fail(path, r, why.text);
        time.instant = moment.when;
    }
    *ret = time.instant;
    return 0;
}

int wb_time_format(int64_t when, enum wb_time_style style, char *text, size_t size)
{
    char whole[WB_WHEN_TEXT_MAX];

    switch (style) {
    case WB_TIME_LOCAL: wb_when_print(when, 1, whole); break;
    case WB_TIME_ISO: wb_when_print_iso(when, whole); break;
    case WB_TIME_EPOCH: wb_when_print_epoch(when, whole); break;
    default: return wb_client_fail(NULL, -EINVAL, "no such style of a time");
    }
    if (strlen(whole) >= size)
        return wb_client_fail(NULL, -ERANGE, "the buffer for a time is too small");
    memcpy(text, whole, strlen(whole) + 1);
    return 0;
}
