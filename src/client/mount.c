/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "client/mount.h"

#include "client/fd.h"
#include "client/path.h"
#include "wayback/at_name.h"
#include "wayback/when.h"
#include <errno.h>
#include <fcntl.h>
#include <string.h>

bool wb_listed_is_wayback(const struct wb_listed *listed)
{
    return strcmp(listed->type, "fuse.wayback") == 0 && !strstr(listed->point, "/" WB_LAYERS_PREFIX);
}

static bool is_listed(const GPtrArray *list, int id)
{
    for (guint i = 0; i < list->len; i++)
        if (((const struct wb_listed *)list->pdata[i])->id == id)
            return true;
    return false;
}

/* Whether its mount point is in `parent`; NULL: in a mount that is not listed, as that of the root is. */
static bool is_in(const GPtrArray *list, const struct wb_listed *listed, const struct wb_listed *parent)
{
    if (listed->id == listed->parent)
        return !parent;
    return parent ? listed->parent == parent->id : !is_listed(list, listed->parent);
}

/* The mount of a mount point in `parent` to which the way along `path` comes first; NULL: the path ends in `parent`. */
static const struct wb_listed *next_of(const GPtrArray *list, const char *path, const struct wb_listed *parent)
{
    const struct wb_listed *first = NULL;

    for (guint i = 0; i < list->len; i++) {
        const struct wb_listed *listed = list->pdata[i];

        if (wb_path_below(path, listed->point, NULL) &&
            (!first || strlen(listed->point) < strlen(first->point)) && is_in(list, listed, parent))
            first = listed;
    }
    return first;
}

/* As the kernel goes: a mount that is covered is not come to. */
const struct wb_listed *wb_listed_of(const GPtrArray *list, const char *path)
{
    const struct wb_listed *at = NULL, *next = next_of(list, path, NULL);

    for (guint steps = 0; next && steps < list->len; steps++) {
        at = next;
        next = next_of(list, path, at);
    }
    return at;
}

struct wb_mount *wb_mount_new(int fd, const char *point, const char *prefix, const struct wb_control_hello *hello)
{
    struct wb_mount *mount = g_new0(struct wb_mount, 1);

    mount->root_fd = fd;
    mount->point = g_strdup(point);
    mount->prefix = g_strdup(prefix);
    mount->hello = *hello;
    mount->at_sign = hello->at_sign ? (char)hello->at_sign : WB_AT_SIGN;
    return mount;
}

struct wb_mount *wb_mount_free(struct wb_mount *mount)
{
    if (mount) {
        close(mount->root_fd);
        g_free(mount->point);
        g_free(mount->prefix);
        g_free(mount);
    }
    return NULL;
}

int wb_mount_refresh(struct wb_mount *mount, struct wb_control_hello *ret)
{
    int r = wb_request_hello(mount->root_fd, ret);

    if (r < 0)
        return r;
    mount->hello.created = ret->created;
    mount->hello.now = MAX(ret->now, mount->hello.now);
    return 0;
}

int64_t wb_mount_now(const struct wb_mount *mount)
{
    int64_t now = wb_when_now(), reported = mount->hello.now;

    /* A time beyond any that a store can have is no present. */
    return reported < G_MAXINT64 / 2 ? MAX(now, reported) : now;
}

struct wb_mount *wb_mount_open(const struct wb_listed *listed, const char *path, int *error)
{
    const char *rest = "";
    g_autofree char *at = g_strdup(listed->point);
    struct wb_control_hello hello;
    const char *prefix = listed->root + strspn(listed->root, "/");

    wb_path_below(path, listed->point, &rest);
    for (;;) {
        const char *below;
        int fd;

        wb_path_below(at, listed->point, &below);
        fd = open(at, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        if (fd >= 0) {
            g_autofree char *whole = wb_path_join(prefix, below);
            int r = wb_request_hello(fd, &hello);

            /* The daemon reports its source to root and the user who mounted; the list of mounts may show it to all. */
            if (r == 0 && !*hello.source && listed->source[0] == '/')
                g_strlcpy(hello.source, listed->source, sizeof(hello.source));
            if (r == 0)
                return wb_mount_new(fd, at, whole, &hello);
            close(fd);
            *error = -r;
            return NULL;
        }
        *error = errno;
        if (*error != EACCES || !*rest)
            return NULL;
        {
            const char *slash = strchrnul(rest, '/');
            g_autofree char *name = g_strndup(rest, (gsize)(slash - rest));
            char *next = wb_path_join(at, name);

            g_free(at);
            at = next;
            rest = *slash ? slash + 1 : "";
        }
    }
}
