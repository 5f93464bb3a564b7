/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "wayback/server.h"

#include "base/cleanup.h"
#include "wayback/mounts.h"
#include <errno.h>
#include <fcntl.h>
#include <glib.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

int wb_server_user(int fd, uid_t *ret)
{
    g_autoptr(GPtrArray) list = wb_listed_of_process(0);
    struct stat st;

    if (fstat(fd, &st) < 0 || !list)
        return -EIO;
    for (guint i = 0; i < list->len; i++) {
        const struct wb_listed *listed = list->pdata[i];

        if (listed->device == st.st_dev && wb_listed_user(listed, ret))
            return 0;
    }
    return -ENOENT;
}

bool wb_server_may_name(uid_t user, int fd)
{
    struct stat st;

    return user == 0 || user == geteuid() || (fstat(fd, &st) == 0 && st.st_uid == user);
}

/* Whether all user numbers of the process are that one: set-user-ID programs have two. */
static int check_process(int proc_fd, uid_t user)
{
    _cleanup_close_ int fd = openat(proc_fd, "status", O_RDONLY | O_CLOEXEC);
    char text[4096] = "";
    unsigned real, effective, saved, file_system;
    ssize_t length = fd < 0 ? -1 : read(fd, text, sizeof(text) - 1);
    const char *line = length > 0 ? strstr(text, "\nUid:\t") : NULL;

    if (!line || sscanf(line, "\nUid:\t%u\t%u\t%u\t%u", &real, &effective, &saved, &file_system) != 4)
        return -ESRCH;
    return real == user && effective == user && saved == user && file_system == user ? 0 : -EBADMSG;
}

/* A descriptor, or a negative errno. */
static int open_named(int proc_fd, int named, uid_t user)
{
    g_autofree char *link = g_strdup_printf("fd/%d", named);
    _cleanup_close_ int fd = openat(proc_fd, link, O_PATH | O_DIRECTORY | O_CLOEXEC);

    if (fd < 0)
        return -errno;
    return wb_server_may_name(user, fd) ? wb_steal_fd(&fd) : -EBADMSG;
}

int wb_server_open(int fd, const struct wb_control_hello *hello, int *ret_tree, int *ret_store)
{
    g_autofree char *process = g_strdup_printf("/proc/%u", hello->pid);
    _cleanup_close_ int proc_fd = -1, tree = -1, store = -1;
    uid_t user;
    int r;

    if (hello->pid == 0 || hello->source_fd < 0)
        return *hello->source ? -EBADMSG : -EPERM;
    r = wb_server_user(fd, &user);
    if (r < 0)
        return r == -ENOENT ? -EBADMSG : r;
    proc_fd = open(process, O_PATH | O_DIRECTORY | O_CLOEXEC);
    r = proc_fd < 0 ? -ESRCH : check_process(proc_fd, user);
    if (r < 0)
        return r;
    tree = open_named(proc_fd, hello->source_fd, user);
    store = hello->store_fd < 0 ? -1 : open_named(proc_fd, hello->store_fd, user);
    if (tree < 0 || (hello->store_fd >= 0 && store < 0))
        return tree < 0 ? tree : store;
    *ret_tree = wb_steal_fd(&tree);
    *ret_store = hello->store_fd < 0 ? -1 : wb_steal_fd(&store);
    return 0;
}
