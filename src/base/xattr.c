/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "base/xattr.h"

#include "base/io.h"
#include <errno.h>
#include <stdbool.h>
#include <string.h>
#include <sys/xattr.h>

/* One agent per process, because capabilities are per process, too. */
static struct {
    ssize_t (*call)(const struct wb_xattr_request *request, void *data);
    void *data;
} agent;

void wb_xattr_use_agent(ssize_t (*call)(const struct wb_xattr_request *request, void *data), void *data)
{
    agent.call = call;
    agent.data = data;
}

static bool has_prefix(const char *name, const char *prefix)
{
    return strncmp(name, prefix, strlen(prefix)) == 0;
}

bool wb_xattr_is_privileged(enum wb_xattr_call call, const char *name)
{
    if (call == WB_XATTR_LIST || has_prefix(name, "trusted."))
        return true;
    return call != WB_XATTR_GET && has_prefix(name, "security.") && strcmp(name, "security.capability") != 0;
}

static ssize_t by_descriptor(const struct wb_xattr_request *request)
{
    switch (request->call) {
    case WB_XATTR_LIST:
        return flistxattr(request->fd, request->ret, request->size);
    case WB_XATTR_GET:
        return fgetxattr(request->fd, request->name, request->ret, request->size);
    case WB_XATTR_SET:
        return fsetxattr(request->fd, request->name, request->value, request->size, request->flags);
    default:
        return fremovexattr(request->fd, request->name);
    }
}

static ssize_t by_path(const struct wb_xattr_request *request)
{
    char path[32];

    wb_fd_path(request->fd, path);
    switch (request->call) {
    case WB_XATTR_LIST:
        return listxattr(path, request->ret, request->size);
    case WB_XATTR_GET:
        return getxattr(path, request->name, request->ret, request->size);
    case WB_XATTR_SET:
        return setxattr(path, request->name, request->value, request->size, request->flags);
    default:
        return removexattr(path, request->name);
    }
}

ssize_t wb_xattr_perform(const struct wb_xattr_request *request)
{
    ssize_t n = by_descriptor(request);

    if (n < 0 && errno == EBADF)
        n = by_path(request);
    return n < 0 ? -errno : n;
}

static ssize_t call(const struct wb_xattr_request *request)
{
    if (agent.call && wb_xattr_is_privileged(request->call, request->name))
        return agent.call(request, agent.data);
    return wb_xattr_perform(request);
}

ssize_t wb_listxattr_fd(int fd, char *list, size_t size)
{
    return call(&(struct wb_xattr_request){.call = WB_XATTR_LIST, .fd = fd, .ret = list, .size = size});
}

ssize_t wb_getxattr_fd(int fd, const char *name, void *value, size_t size)
{
    return call(&(struct wb_xattr_request){.call = WB_XATTR_GET, .fd = fd, .name = name, .ret = value, .size = size});
}

int wb_setxattr_fd(int fd, const char *name, const void *value, size_t size, int flags)
{
    return (int)call(&(struct wb_xattr_request){.call = WB_XATTR_SET, .fd = fd, .name = name, .value = value,
                                                .size = size, .flags = flags});
}

int wb_removexattr_fd(int fd, const char *name)
{
    return (int)call(&(struct wb_xattr_request){.call = WB_XATTR_REMOVE, .fd = fd, .name = name});
}
