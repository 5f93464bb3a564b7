/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "base/held.h"

#include "base/cleanup.h"
#include "base/io.h"
#include "base/xattr.h"
#include <errno.h>
#include <fcntl.h>
#include <glib.h>
#include <limits.h>
#include <linux/magic.h>
#include <linux/openat2.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/syscall.h>
#include <sys/vfs.h>
#include <sys/xattr.h>
#include <unistd.h>

/* The kernel's own limit of links in one path. */
#define LINKS_MAX 40

/* ---- opening by a path ----------------------------------------------------------------------- */

/* Copies the first component of *path into `name` and moves *path behind it. Its length, 0 at the end, or -errno. */
static int next_component(const char **path, char name[NAME_MAX + 1])
{
    size_t length;

    *path += strspn(*path, "/");
    length = strcspn(*path, "/");
    if (length > NAME_MAX)
        return -ENAMETOOLONG;
    memcpy(name, *path, length);
    name[length] = '\0';
    *path += length;
    *path += strspn(*path, "/");
    return (int)length;
}

/* Refuses a symbolic link also if O_PATH | O_NOFOLLOW would open it. */
static int open_no_link(int dir_fd, const char *name, int flags)
{
    _cleanup_close_ int fd = openat(dir_fd, name, flags | O_NOFOLLOW | O_CLOEXEC);
    struct stat st;

    if (fd < 0) {
        int error = errno;

        /* With O_DIRECTORY the kernel returns ENOTDIR for a link, too. */
        if (error == ENOTDIR && fstatat(dir_fd, name, &st, AT_SYMLINK_NOFOLLOW) == 0 && S_ISLNK(st.st_mode))
            return -ELOOP;
        return -error;
    }
    if (fstat(fd, &st) < 0)
        return -errno;
    return S_ISLNK(st.st_mode) && !(flags & O_NOFOLLOW) ? -ELOOP : wb_steal_fd(&fd);
}

/* Moves to `fd`, which must be of the file system `dev` unless that is NULL. A descriptor or -errno. */
static int arrive(int fd, const dev_t *dev)
{
    _cleanup_close_ int found = fd;
    struct stat st;

    if (found < 0 || !dev)
        return wb_steal_fd(&found);
    if (fstat(found, &st) < 0)
        return -errno;
    return st.st_dev == *dev ? wb_steal_fd(&found) : -EXDEV;
}

static int open_by_steps(int dir_fd, const char *path, int flags, const dev_t *dev)
{
    _cleanup_close_ int at = -1;
    char name[NAME_MAX + 1];

    if (*path == '/')
        return -EXDEV;
    for (;;) {
        int n = next_component(&path, name), fd;

        if (n < 0)
            return n;
        /* openat2(2) permits ".." below the start; this walk refuses every "..". */
        if (strcmp(name, "..") == 0)
            return -EXDEV;
        if (!*path && n > 0 && path[-1] == '/')
            flags |= O_DIRECTORY;
        if (!*path)
            return arrive(open_no_link(at < 0 ? dir_fd : at, n > 0 ? name : ".", flags), dev);
        fd = arrive(open_no_link(at < 0 ? dir_fd : at, name, O_PATH | O_DIRECTORY), dev);
        if (fd < 0)
            return fd;
        wb_close_fd(&at);
        at = fd;
    }
}

int wb_open_beneath_by_steps(int dir_fd, const char *path, int flags)
{
    return open_by_steps(dir_fd, path, flags, NULL);
}

int wb_open_in_mount_by_steps(int dir_fd, const char *path, int flags)
{
    struct stat st;

    return fstat(dir_fd, &st) < 0 ? -errno : open_by_steps(dir_fd, path, flags, &st.st_dev);
}

/* -ENOSYS: the kernel does not have openat2(2), or a sandbox forbids it. */
static int open_resolved(int dir_fd, const char *path, int flags, uint64_t resolve)
{
    struct open_how how = {.flags = (uint64_t)(unsigned)(flags | O_CLOEXEC), .resolve = resolve};
    long fd;

    do
        fd = syscall(SYS_openat2, dir_fd, *path ? path : ".", &how, sizeof(how));
    while (fd < 0 && (errno == EINTR || errno == EAGAIN));
    if (fd < 0)
        return errno == EPERM ? -ENOSYS : -errno;
    return (int)fd;
}

int wb_open_beneath(int dir_fd, const char *path, int flags)
{
    int fd = open_resolved(dir_fd, path, flags, RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS | RESOLVE_NO_MAGICLINKS);

    return fd == -ENOSYS ? wb_open_beneath_by_steps(dir_fd, path, flags) : fd;
}

int wb_open_in_mount(int dir_fd, const char *path, int flags)
{
    int fd = open_resolved(dir_fd, path, flags,
                           RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS | RESOLVE_NO_MAGICLINKS | RESOLVE_NO_XDEV);

    return fd == -ENOSYS ? wb_open_in_mount_by_steps(dir_fd, path, flags) : fd;
}

/* The target of the link with `rest` appended; free(3). NULL and errno on failure. */
static char *follow(int link_fd, const struct stat *st, const char *rest)
{
    char target[PATH_MAX], *path;
    ssize_t n;

    if (st->st_uid != 0 && st->st_uid != geteuid()) {
        errno = ELOOP;
        return NULL;
    }
    n = readlinkat(link_fd, "", target, sizeof(target) - 1);
    if (n < 0)
        return NULL;
    target[n] = '\0';
    return asprintf(&path, "%s/%s", target, rest) < 0 ? NULL : path;
}

/*
 * Links in /proc lead to the directory of a process, whatever their text: it may be in another mount namespace, or
 * deleted. A descriptor, or -errno; -ENOTTY: the link is not in /proc.
 */
static int follow_in_proc(int dir_fd, const char *name, int link_fd, const struct stat *st)
{
    struct statfs fs;
    int fd;

    if (fstatfs(link_fd, &fs) < 0 || fs.f_type != PROC_SUPER_MAGIC)
        return -ENOTTY;
    if (st->st_uid != 0 && st->st_uid != geteuid())
        return -ELOOP;
    fd = openat(dir_fd, name, O_PATH | O_DIRECTORY | O_CLOEXEC);
    return fd < 0 ? -errno : fd;
}

/* A descriptor that is moved along the path. */
struct steps {
    int at;
    char *path; /* the remainder of the path begins at `rest` */
    const char *rest;
    unsigned links;
};

static int start(struct steps *steps, const char *path)
{
    if (*path == '/' || steps->at < 0) {
        wb_close_fd(&steps->at);
        steps->at = open(*path == '/' ? "/" : ".", O_PATH | O_DIRECTORY | O_CLOEXEC);
    }
    return steps->at < 0 ? -errno : 0;
}

/* 1: there are more components; 0: this was the last one; or -errno. */
static int step(struct steps *steps)
{
    _cleanup_close_ int fd = -1;
    char name[NAME_MAX + 1];
    struct stat st;
    int n = next_component(&steps->rest, name);

    if (n <= 0)
        return n;
    fd = openat(steps->at, name, O_PATH | O_NOFOLLOW | O_CLOEXEC);
    if (fd < 0 || fstat(fd, &st) < 0)
        return -errno;
    n = S_ISLNK(st.st_mode) ? follow_in_proc(steps->at, name, fd, &st) : -ENOTTY;
    if (n >= 0) {
        wb_close_fd(&steps->at);
        steps->at = n;
        return 1;
    }
    if (n != -ENOTTY)
        return n;
    if (S_ISLNK(st.st_mode)) {
        char *path = ++steps->links > LINKS_MAX ? NULL : follow(fd, &st, steps->rest);

        if (!path)
            return steps->links > LINKS_MAX ? -ELOOP : -errno;
        free(steps->path);
        steps->rest = steps->path = path;
        n = start(steps, path);
        return n < 0 ? n : 1;
    }
    if (!S_ISDIR(st.st_mode))
        return -ENOTDIR;
    wb_close_fd(&steps->at);
    steps->at = wb_steal_fd(&fd);
    return 1;
}

int wb_open_named_dir(const char *path)
{
    struct steps steps = {.at = -1, .rest = path};
    int r = open_resolved(AT_FDCWD, path, O_PATH | O_DIRECTORY, RESOLVE_NO_SYMLINKS);

    if (r != -ELOOP && r != -ENOSYS)
        return r;
    r = start(&steps, path);
    while (r == 0 || r == 1) {
        r = step(&steps);
        if (r == 0)
            break;
    }
    free(steps.path);
    if (r < 0)
        wb_close_fd(&steps.at);
    return r < 0 ? r : steps.at;
}

/* ---- the object ------------------------------------------------------------------------------ */

static bool is_same(const struct stat *a, const struct stat *b)
{
    return a->st_dev == b->st_dev && a->st_ino == b->st_ino && (a->st_mode & S_IFMT) == (b->st_mode & S_IFMT);
}

int wb_hold(int dir_fd, const char *name, const struct stat *expected)
{
    _cleanup_close_ int fd = openat(dir_fd, name, O_PATH | O_NOFOLLOW | O_CLOEXEC);
    struct stat st;

    if (fd < 0 || fstat(fd, &st) < 0)
        return -errno;
    return expected && !is_same(&st, expected) ? -ESTALE : wb_steal_fd(&fd);
}

int wb_held_open(int fd, int flags)
{
    char path[32];
    int opened = open(wb_fd_path(fd, path), flags | O_NONBLOCK | O_CLOEXEC);

    return opened < 0 ? -errno : opened;
}

int wb_held_link(int fd, int dir_fd, const char *name)
{
    char path[32];

    return linkat(AT_FDCWD, wb_fd_path(fd, path), dir_fd, name, AT_SYMLINK_FOLLOW) < 0 ? -errno : 0;
}

int wb_held_rename(int fd, int from_dir, const char *from, int to_dir, const char *to, unsigned flags)
{
    struct stat expected;
    int r = fstat(fd, &expected) < 0 ? -errno : 0;

    if (r == 0 && renameat2(from_dir, from, to_dir, to, flags) < 0)
        r = -errno;
    if (r == 0) {
        int held = wb_hold(to_dir, to, &expected);

        r = held < 0 ? -ESTALE : 0;
        wb_close_fd(&held);
    }
    return r;
}

/* Whether only its owner can rename entries of it; the group's bits include the rights of an ACL. */
static bool is_private(int dir_fd)
{
    struct stat st;

    return fstat(dir_fd, &st) == 0 && (st.st_uid == 0 || st.st_uid == geteuid()) &&
           (st.st_mode & S_ISVTX || !(st.st_mode & (S_IWGRP | S_IWOTH)));
}

/* Makes the object in a private directory. */
static int make_here(int dir_fd, const char *name, mode_t type, dev_t device, const char *target)
{
    int r = S_ISDIR(type)   ? mkdirat(dir_fd, name, 0700)
            : S_ISLNK(type) ? symlinkat(target, dir_fd, name)
                            : mknodat(dir_fd, name, (type & S_IFMT) | 0600, device);
    int fd;

    if (r < 0)
        return -errno;
    fd = openat(dir_fd, name, (S_ISDIR(type) ? O_RDONLY | O_DIRECTORY : O_PATH) | O_NOFOLLOW | O_CLOEXEC);
    if (fd < 0) {
        r = -errno;
        unlinkat(dir_fd, name, S_ISDIR(type) ? AT_REMOVEDIR : 0);
    }
    return fd < 0 ? r : fd;
}

/* Opens whatever object has the name of the new directory now: any directory that only the caller can enter will do. */
static int open_entered_by_caller_only(int dir_fd, const char *name)
{
    _cleanup_close_ int fd = openat(dir_fd, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    struct stat st;

    if (fd < 0)
        return errno == ENOTDIR || errno == ELOOP || errno == EACCES ? -ESTALE : -errno;
    if (fstat(fd, &st) < 0)
        return -errno;
    return st.st_uid == geteuid() && !(st.st_mode & 077) ? wb_steal_fd(&fd) : -ESTALE;
}

static int make_aside(int dir_fd, const char *name, mode_t type, dev_t device, const char *target)
{
    _cleanup_close_ int place = -1;
    _cleanup_close_ int fd = -1;
    char aside[48];
    uint64_t random;
    int r;

    if (getrandom(&random, sizeof(random), 0) != (ssize_t)sizeof(random))
        return -errno;
    snprintf(aside, sizeof(aside), ".wayback-%016llx", (unsigned long long)random);
    if (mkdirat(dir_fd, aside, 0700) < 0)
        return -errno;
    r = place = open_entered_by_caller_only(dir_fd, aside);
    if (r >= 0)
        r = fd = make_here(place, aside, type, device, target);
    if (r >= 0)
        r = wb_held_rename(fd, place, aside, dir_fd, name, RENAME_NOREPLACE);
    if (fd >= 0 && r < 0)
        unlinkat(place, aside, S_ISDIR(type) ? AT_REMOVEDIR : 0);
    unlinkat(dir_fd, aside, AT_REMOVEDIR);
    return r < 0 ? r : wb_steal_fd(&fd);
}

int wb_held_make(int dir_fd, const char *name, mode_t type, dev_t device, const char *target)
{
    int fd;

    if (S_ISREG(type)) {
        fd = openat(dir_fd, name, O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
        return fd < 0 ? -errno : fd;
    }
    return is_private(dir_fd) ? make_here(dir_fd, name, type, device, target)
                              : make_aside(dir_fd, name, type, device, target);
}

/* Sets the attributes of a held object. */

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
