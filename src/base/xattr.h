/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

/*
 * Extended attributes of the object that a descriptor refers to, O_PATH or not. An O_PATH descriptor makes them ten
 * times as expensive. All functions return a length or 0, or -errno.
 */

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

ssize_t wb_listxattr_fd(int fd, char *list, size_t size);
ssize_t wb_getxattr_fd(int fd, const char *name, void *value, size_t size);
int wb_setxattr_fd(int fd, const char *name, const void *value, size_t size, int flags);
int wb_removexattr_fd(int fd, const char *name);

/*
 * An agent is another process with CAP_SYS_ADMIN. It makes the calls that need that capability: all calls for
 * trusted.*, a list of names that may include such names, and changes of security.* other than file capabilities.
 * Without an agent this process makes all calls.
 */
enum wb_xattr_call { WB_XATTR_LIST, WB_XATTR_GET, WB_XATTR_SET, WB_XATTR_REMOVE };

struct wb_xattr_request {
    enum wb_xattr_call call;
    int fd;
    const char *name; /* NULL: LIST */
    const void *value; /* of SET */
    void *ret;         /* of LIST and GET */
    size_t size;
    int flags;
};

/* One agent per process, because capabilities are per process, too; call it before other threads exist. NULL: there is
 * no agent any more. */
void wb_xattr_use_agent(ssize_t (*agent)(const struct wb_xattr_request *request, void *data), void *data);

/* Whether only an agent may make that call. */
bool wb_xattr_is_privileged(enum wb_xattr_call call, const char *name);

/* Makes the call in this process. */
ssize_t wb_xattr_perform(const struct wb_xattr_request *request);
