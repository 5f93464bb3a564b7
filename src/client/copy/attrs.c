/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "client/copy/copy.h"
#include "client/copy/flags.h"
#include "client/fd.h"
#include <errno.h>
#include <glib.h>
#include <string.h>
#include <sys/xattr.h>

/* One wb_copy_attrs under way. */
struct task {
    int from_dir;
    const char *from_name;
    const struct stat *from;
    unsigned flags;
    int error;
    const char *what;
};

static void note(struct task *task, const char *what, int error)
{
    if (task->error == 0) {
        task->error = error;
        task->what = what;
    }
}

/* ---- what it is to have ---------------------------------------------------------------------- */

/* Names separated by NUL; none where the file system has none. -1 with errno. */
static ssize_t list_xattrs(const char *path, char **ret)
{
    for (;;) {
        ssize_t size = listxattr(path, NULL, 0);

        *ret = NULL;
        if (size <= 0)
            return size < 0 && errno == EOPNOTSUPP ? 0 : size;
        *ret = g_malloc((gsize)size);
        size = listxattr(path, *ret, (size_t)size);
        if (size >= 0 || errno != ERANGE)
            return size;
        g_free(*ret);
    }
}

static ssize_t get_xattr(const char *path, const char *name, void **ret)
{
    for (;;) {
        ssize_t size = getxattr(path, name, NULL, 0);

        *ret = NULL;
        if (size < 0)
            return size;
        *ret = g_malloc((gsize)size + 1);
        size = getxattr(path, name, *ret, (size_t)size);
        if (size >= 0 || errno != ERANGE)
            return size;
        g_free(*ret);
    }
}

static void xattr_clear(void *data)
{
    struct wb_held_xattr *xattr = data;

    g_free((void *)xattr->value);
}

/* Attributes of what `fd` holds, with names that point into *ret_names. */
static void read_attrs(struct task *task, int fd, struct wb_held_attrs *ret, GArray *xattrs, char **ret_names)
{
    const struct stat *from = task->from;
    char path[WB_FD_PATH_MAX];
    ssize_t length;

    *ret = (struct wb_held_attrs){.mode = from->st_mode, .uid = from->st_uid, .gid = from->st_gid,
                                  .times = {from->st_atim, from->st_mtim}};
    wb_fd_proc_path(fd, path);
    length = list_xattrs(path, ret_names);
    if (length < 0) {
        note(task, "the extended attributes", -errno);
        return;
    }
    for (const char *name = *ret_names; name < *ret_names + length; name += strlen(name) + 1) {
        void *value;
        ssize_t size = get_xattr(path, name, &value);
        struct wb_held_xattr xattr = {name, size < 0 ? NULL : value, (size_t)MAX(size, 0)};

        if (size < 0)
            note(task, "an extended attribute (reading it)", -errno);
        g_array_append_val(xattrs, xattr);
    }
    ret->has_xattrs = true;
    ret->xattrs = (const struct wb_held_xattr *)(void *)xattrs->data;
    ret->xattr_count = xattrs->len;
}

static GArray *xattrs_new(void)
{
    GArray *xattrs = g_array_new(FALSE, FALSE, sizeof(struct wb_held_xattr));

    g_array_set_clear_func(xattrs, xattr_clear);
    return xattrs;
}

/* ---- giving it ------------------------------------------------------------------------------- */

static int failed(void *data, const char *what, const char *xattr, int error)
{
    struct task *task = data;

    (void)xattr;
    /* A user namespace does not have that owner. */
    if (error == -EINVAL && strcmp(what, "the owner") == 0)
        return 0;
    /* What a copy made by an ordinary user, or on another file system, cannot have. */
    if (task->flags & WB_ATTRS_LENIENT && (error == -EPERM || error == -EACCES || error == -EOPNOTSUPP) &&
        strcmp(what, "the mode") != 0)
        return 0;
    note(task, what, error);
    return error;
}

/* Last of all: an immutable file takes no other attribute. */
static int set_flags(void *data, int fd)
{
    const struct task *task = data;

    return wb_copy_flags(task->from_dir, task->from_name, fd, task->from->st_mode, task->flags & WB_ATTRS_DRY);
}

static bool has_flags(const struct task *task)
{
    return !(task->flags & (WB_ATTRS_LENIENT | WB_ATTRS_NO_FLAGS));
}

static int set(struct task *task, const struct wb_held_attrs *want, int to, bool dry)
{
    struct wb_held_setting setting = {.failed = failed, .data = task, .set_flags = has_flags(task) ? set_flags : NULL};

    setting.flags = (dry ? WB_HELD_DRY : 0) | (task->flags & WB_ATTRS_TOUCHED ? WB_HELD_TOUCHED : 0) |
                    (task->flags & WB_ATTRS_LENIENT ? WB_HELD_ELSEWHERE : 0);
    return wb_held_set(to, want, &setting);
}

/* Clears the flags that no change gets past, if there is anything to change: 1, 0 for nothing to do, or -errno. */
static int unlock(struct task *task, const struct wb_held_attrs *want, int to)
{
    unsigned flags = task->flags;
    int r = wb_unlock_flags(to, task->from->st_mode, true);

    if (r <= 0 || task->flags & WB_ATTRS_DRY)
        return r < 0 ? r : 1;
    task->flags |= WB_ATTRS_DRY;
    r = set(task, want, to, true);
    task->flags = flags;
    if (r > 0)
        r = wb_unlock_flags(to, task->from->st_mode, false);
    if (r < 0)
        note(task, "the flags (chattr)", r);
    return r;
}

int wb_copy_attrs(int from_dir, const char *from_name, const struct stat *from, int to, unsigned flags,
                  const char **what)
{
    _cleanup_fd_ int from_fd = wb_hold(from_dir, from_name, NULL);
    struct task task = {.from_dir = from_dir, .from_name = from_name, .from = from, .flags = flags};
    g_autoptr(GArray) xattrs = xattrs_new();
    g_autofree char *names = NULL;
    struct wb_held_attrs want;
    int r;

    *what = "the attributes";
    if (from_fd < 0)
        return from_fd;
    read_attrs(&task, from_fd, &want, xattrs, &names);
    r = has_flags(&task) ? unlock(&task, &want, to) : 1;
    if (r > 0)
        r = set(&task, &want, to, flags & WB_ATTRS_DRY);
    if (task.what)
        *what = task.what;
    return task.error < 0 ? task.error : r;
}

int wb_copy_has_power(int from_dir, const char *from_name, const struct stat *from)
{
    static const struct wb_held_xattr capability = {.name = "security.capability"};
    _cleanup_fd_ int from_fd = S_ISREG(from->st_mode) ? wb_hold(from_dir, from_name, NULL) : -1;
    struct wb_held_attrs attrs = {.mode = from->st_mode, .has_xattrs = true, .xattrs = &capability};
    char path[WB_FD_PATH_MAX];

    if (!S_ISREG(from->st_mode))
        return 0;
    if (from_fd < 0)
        return from_fd;
    if (getxattr(wb_fd_proc_path(from_fd, path), capability.name, NULL, 0) >= 0)
        attrs.xattr_count = 1;
    else if (errno != ENODATA && errno != EOPNOTSUPP)
        return -errno;
    return wb_held_has_power(&attrs);
}
