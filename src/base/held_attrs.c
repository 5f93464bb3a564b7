/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Sets the attributes of a held object. */
#include "base/held.h"

#include "base/io.h"
#include "base/xattr.h"
#include <errno.h>
#include <fcntl.h>
#include <glib.h>
#include <stdint.h>
#include <string.h>
#include <sys/xattr.h>
#include <unistd.h>

/* The kernel removes it on chmod(2), chown(2) and writes. */
#define CAPABILITY "security.capability"
#define SET_ID (S_ISUID | S_ISGID)

/* One wb_held_set under way. */
struct task {
    int fd;
    const struct wb_held_attrs *want;
    const struct wb_held_setting *setting;
    bool changed;
    int error;
};

static bool is_dry(const struct task *task)
{
    return task->setting->flags & WB_HELD_DRY;
}

static void failed(struct task *task, const char *what, const char *xattr, int error)
{
    int r = task->setting->failed ? task->setting->failed(task->setting->data, what, xattr, error) : error;

    if (r < 0 && task->error == 0)
        task->error = r;
}

/* ---- owner and mode -------------------------------------------------------------------------- */

/* The mode without set-id bits if the file now has another owner than `want` names: the bits would grant the rights of
 * that owner. */
static mode_t mode_for(struct task *task, const struct stat *have)
{
    const struct wb_held_attrs *want = task->want;
    bool foreign = task->setting->flags & WB_HELD_FOREIGN;
    mode_t mode = want->mode & 07777;

    if (S_ISDIR(want->mode) && foreign)
        return mode;
    if (have->st_uid != want->uid || have->st_gid != want->gid || (foreign && geteuid() != 0))
        mode &= ~(mode_t)SET_ID;
    if (mode != (want->mode & 07777) && foreign)
        failed(task, "the set-id bits", NULL, -EPERM);
    return mode;
}

/* Returns the mode to set. */
static mode_t set_owner(struct task *task, const struct stat *before)
{
    const struct wb_held_attrs *want = task->want;
    struct stat have = *before;

    if (have.st_uid == want->uid && have.st_gid == want->gid)
        return mode_for(task, &have);
    if (is_dry(task)) {
        task->changed = true;
        return want->mode & 07777;
    }
    /* The file must never be executable with one owner's rights and content that another user could write. */
    if (S_ISREG(have.st_mode) && have.st_mode & SET_ID)
        (void)wb_chmod_fd(task->fd, have.st_mode & 07777 & ~(mode_t)SET_ID);
    if (fchownat(task->fd, "", want->uid, want->gid, AT_EMPTY_PATH) == 0) {
        task->changed = true;
    } else {
        int error = errno;

        failed(task, "the owner", NULL, -error);
        if (task->error < 0)
            return have.st_mode & 07777 & ~(mode_t)SET_ID;
        if (have.st_gid != want->gid && fchownat(task->fd, "", (uid_t)-1, want->gid, AT_EMPTY_PATH) == 0)
            task->changed = true;
    }
    if (fstat(task->fd, &have) < 0) {
        failed(task, "the owner", NULL, -errno);
        return want->mode & 07777 & ~(mode_t)SET_ID;
    }
    return mode_for(task, &have);
}

static void set_mode(struct task *task, mode_t mode)
{
    struct stat have;
    int r = 0;

    /* Sets the mode again: chown(2) and a change of the ACL alter it. */
    if (S_ISLNK(task->want->mode) || fstat(task->fd, &have) < 0 || (have.st_mode & 07777) == mode)
        return;
    if (!is_dry(task))
        r = wb_chmod_fd(task->fd, mode);
    if (r < 0)
        failed(task, "the mode", NULL, r);
    else
        task->changed = true;
}

/* ---- extended attributes --------------------------------------------------------------------- */

static const struct wb_held_xattr *find(const struct wb_held_attrs *attrs, const char *name)
{
    for (size_t i = 0; i < attrs->xattr_count; i++)
        if (strcmp(attrs->xattrs[i].name, name) == 0)
            return &attrs->xattrs[i];
    return NULL;
}

/* Names separated by NUL, for g_free; an empty list if the file system supports no extended attributes. Their length or
 * -errno. */
static ssize_t list_xattrs(int fd, char **ret)
{
    for (;;) {
        ssize_t size = wb_listxattr_fd(fd, NULL, 0);

        *ret = NULL;
        if (size <= 0)
            return size != -EOPNOTSUPP ? size : 0;
        *ret = g_try_malloc((gsize)size);
        if (!*ret)
            return -ENOMEM;
        size = wb_listxattr_fd(fd, *ret, (size_t)size);
        if (size >= 0)
            return size;
        g_clear_pointer(ret, g_free);
        if (size != -ERANGE)
            return size;
    }
}

/* Whether the attribute has this value; false if it cannot be read. */
static bool has_value(int fd, const struct wb_held_xattr *xattr)
{
    g_autofree char *have = g_try_malloc(xattr->size + 1);
    ssize_t size = have ? wb_getxattr_fd(fd, xattr->name, have, xattr->size + 1) : -ENOMEM;

    return size == (ssize_t)xattr->size && memcmp(have, xattr->value, xattr->size) == 0;
}

/* Whether this pass handles the name: file capabilities are set after the mode. */
static bool is_meant(const struct task *task, const char *name, bool capability)
{
    return (strcmp(name, CAPABILITY) == 0) == capability &&
           !(task->setting->flags & WB_HELD_ELSEWHERE && strcmp(name, "security.selinux") == 0);
}

static const char *called(const char *name)
{
    return g_str_has_prefix(name, "system.posix_acl") ? "the access list" : "an extended attribute";
}

static void remove_others(struct task *task, bool capability)
{
    g_autofree char *names = NULL;
    ssize_t length = list_xattrs(task->fd, &names);

    if (length < 0)
        failed(task, "the extended attributes", NULL, (int)length);
    for (const char *name = names; name < names + MAX(length, 0); name += strlen(name) + 1) {
        int r = 0;

        if (!is_meant(task, name, capability) || find(task->want, name))
            continue;
        if (!is_dry(task))
            r = wb_removexattr_fd(task->fd, name);
        if (r == -ENODATA)
            continue;
        if (r < 0)
            failed(task, "an extended attribute (removing it)", name, r);
        else
            task->changed = true;
    }
}

static void set_xattrs(struct task *task, bool capability)
{
    if (!task->want->has_xattrs)
        return;
    remove_others(task, capability);
    for (size_t i = 0; i < task->want->xattr_count; i++) {
        const struct wb_held_xattr *xattr = &task->want->xattrs[i];
        int r = 0;

        if (!xattr->value || !is_meant(task, xattr->name, capability) || has_value(task->fd, xattr))
            continue;
        if (!is_dry(task))
            r = wb_setxattr_fd(task->fd, xattr->name, xattr->value, xattr->size, 0);
        if (r == 0)
            task->changed = true;
        else
            failed(task, called(xattr->name), xattr->name, r);
    }
}

/* ---- all ------------------------------------------------------------------------------------- */

static bool is_same_time(const struct timespec *a, const struct timespec *b)
{
    return a->tv_sec == b->tv_sec && a->tv_nsec == b->tv_nsec;
}

static void set_times(struct task *task, const struct stat *before)
{
    /* A different access time alone is no reason to set the times: reading the file to compare it may have changed
     * that. */
    if (!(task->setting->flags & WB_HELD_TOUCHED) && is_same_time(&before->st_mtim, &task->want->times[1]))
        return;
    if (!is_dry(task) && utimensat(task->fd, "", task->want->times, AT_EMPTY_PATH) < 0)
        failed(task, "the times", NULL, -errno);
    else
        task->changed = true;
}

int wb_held_set(int fd, const struct wb_held_attrs *want, const struct wb_held_setting *setting)
{
    struct task task = {.fd = fd, .want = want, .setting = setting};
    struct stat before;
    mode_t mode;
    int r;

    if (fstat(fd, &before) < 0)
        return -errno;
    mode = set_owner(&task, &before);
    set_xattrs(&task, false);
    set_mode(&task, mode);
    set_xattrs(&task, true);
    set_times(&task, &before);
    r = setting->set_flags ? setting->set_flags(setting->data, fd) : 0;
    if (r < 0)
        failed(&task, "the flags (chattr)", NULL, r);
    return task.error < 0 ? task.error : task.changed || r > 0;
}

bool wb_held_has_power(const struct wb_held_attrs *attrs)
{
    return S_ISREG(attrs->mode) && (attrs->mode & SET_ID || find(attrs, CAPABILITY));
}

int wb_held_disarm(int fd, mode_t want)
{
    struct stat have;
    mode_t mode;
    int r;

    if (fstat(fd, &have) < 0)
        return -errno;
    mode = have.st_mode & want & 07777 & ~(mode_t)SET_ID;
    if (mode != (have.st_mode & 07777)) {
        r = wb_chmod_fd(fd, mode);
        if (r < 0)
            return r;
    }
    /* Only root may remove it; for other users the write removes it. */
    r = wb_removexattr_fd(fd, CAPABILITY);
    return r == -ENODATA || r == -EOPNOTSUPP || (r == -EPERM && geteuid() != 0) ? 0 : r;
}
