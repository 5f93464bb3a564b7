/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "common/copy.h"
#include "common/copy_flags.h"
#include "common/fd.h"
#include <errno.h>
#include <fcntl.h>
#include <glib.h>
#include <string.h>
#include <sys/xattr.h>
#include <unistd.h>

/* chmod(2) and chown(2) take it away, so it is set last of all. */
#define CAPABILITY "security.capability"

/* One wb_copy_attrs under way. */
struct task {
    int from_fd, to; /* O_PATH, or open */
    const char *from_name;
    int from_dir;
    const struct stat *from;
    unsigned flags;
    bool changed;
    int error;
    const char *what;
};

static void note(struct task *task, const char *what)
{
    if (task->error == 0) {
        task->error = -errno;
        task->what = what;
    }
}

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

static ssize_t get_xattr(const char *path, const char *name, char **ret)
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

static bool in_list(const char *list, ssize_t size, const char *name)
{
    for (const char *at = list; at < list + size; at += strlen(at) + 1) {
        if (strcmp(at, name) == 0)
            return true;
    }
    return false;
}

/* Attributes that belong to the place and not to the file. */
static bool foreign(const struct task *task, const char *name)
{
    return (task->flags & WB_ATTRS_LENIENT) && strcmp(name, "security.selinux") == 0;
}

/* What a copy made by an ordinary user, or on another file system, cannot have. */
static bool forgiven(const struct task *task)
{
    return (task->flags & WB_ATTRS_LENIENT) && (errno == EPERM || errno == EACCES || errno == EOPNOTSUPP);
}

static void copy_xattr(struct task *task, const char *from, const char *to, const char *name)
{
    g_autofree char *want = NULL;
    g_autofree char *have = NULL;
    ssize_t want_size = get_xattr(from, name, &want);
    ssize_t have_size;

    if (want_size < 0) {
        note(task, "an extended attribute (reading it)");
        return;
    }
    have_size = get_xattr(to, name, &have);
    if (have_size == want_size && memcmp(have, want, (size_t)want_size) == 0)
        return;
    if (!(task->flags & WB_ATTRS_DRY) && setxattr(to, name, want, (size_t)want_size, 0) < 0) {
        if (!forgiven(task))
            note(task, g_str_has_prefix(name, "system.posix_acl") ? "the access list" : "an extended attribute");
        return;
    }
    task->changed = true;
}

/* `capability`: only that one, or all others. */
static void copy_xattrs(struct task *task, bool capability)
{
    char from[WB_FD_PATH_MAX], to[WB_FD_PATH_MAX];
    g_autofree char *want = NULL;
    g_autofree char *have = NULL;
    ssize_t want_size, have_size;

    wb_fd_proc_path(task->from_fd, from);
    wb_fd_proc_path(task->to, to);
    want_size = list_xattrs(from, &want);
    have_size = want_size < 0 ? 0 : list_xattrs(to, &have);
    if (want_size < 0 || have_size < 0) {
        note(task, "the extended attributes");
        return;
    }
    for (const char *at = have; at < have + have_size; at += strlen(at) + 1) {
        if ((strcmp(at, CAPABILITY) == 0) != capability || foreign(task, at) ||
            in_list(want, want_size, at))
            continue;
        if (!(task->flags & WB_ATTRS_DRY) && removexattr(to, at) < 0 && errno != ENODATA) {
            if (!forgiven(task))
                note(task, "an extended attribute");
            continue;
        }
        task->changed = true;
    }
    for (const char *at = want; at < want + want_size; at += strlen(at) + 1) {
        if ((strcmp(at, CAPABILITY) == 0) == capability && !foreign(task, at))
            copy_xattr(task, from, to, at);
    }
}

/* Returns the mode to give: without suid and sgid where the owner could not be given. */
static mode_t copy_owner(struct task *task, const struct stat *have)
{
    const struct stat *want = task->from;
    mode_t mode = want->st_mode & 07777;

    if (have->st_uid == want->st_uid && have->st_gid == want->st_gid)
        return mode;
    if (task->flags & WB_ATTRS_DRY) {
        task->changed = true;
        return mode;
    }
    if (fchownat(task->to, "", want->st_uid, want->st_gid, AT_EMPTY_PATH) == 0) {
        task->changed = true;
        return mode;
    }
    if (!forgiven(task) && errno != EINVAL) {
        note(task, "the owner");
        return have->st_mode & 07777;
    }
    if (have->st_gid != want->st_gid &&
        fchownat(task->to, "", (uid_t)-1, want->st_gid, AT_EMPTY_PATH) == 0)
        task->changed = true;
    /* Not ours to hand out: somebody else's file run with our rights. */
    return mode & ~(mode_t)(S_ISUID | S_ISGID);
}

static void copy_mode(struct task *task, mode_t mode)
{
    char path[WB_FD_PATH_MAX];
    struct stat have;

    /* Again: chown and an access list change it. */
    if (S_ISLNK(task->from->st_mode) ||
        fstat(task->to, &have) < 0 ||
        (have.st_mode & 07777) == mode)
        return;
    if (!(task->flags & WB_ATTRS_DRY)) {
        if (chmod(wb_fd_proc_path(task->to, path), mode) < 0) {
            note(task, "the mode");
            return;
        }
    }
    task->changed = true;
}

static bool same_time(const struct timespec *a, const struct timespec *b)
{
    return a->tv_sec == b->tv_sec && a->tv_nsec == b->tv_nsec;
}

static void copy_times(struct task *task, const struct stat *have)
{
    const struct timespec times[2] = {task->from->st_atim, task->from->st_mtim};

    /* The access time alone is no reason: reading the file for comparison may have moved it. */
    if (!(task->flags & WB_ATTRS_TOUCHED) && same_time(&have->st_mtim, &task->from->st_mtim))
        return;
    if (!(task->flags & WB_ATTRS_DRY) &&
        utimensat(task->to, "", times, AT_EMPTY_PATH) < 0) {
        if (!forgiven(task))
            note(task, "the times");
        return;
    }
    task->changed = true;
}

/* Last of all: an immutable file takes no other attribute. */
static void copy_flags(struct task *task)
{
    int r = wb_copy_flags(task->from_dir, task->from_name, task->to, task->from->st_mode, task->flags & WB_ATTRS_DRY);

    if (r < 0) {
        errno = -r;
        note(task, "the flags (chattr)");
    }
    task->changed = task->changed || r > 0;
}

/* Clears the flags that no change gets past, if there is anything to change: 1, 0 for nothing to do, or -errno. */
static int unlock(struct task *task)
{
    const char *what;
    int r = wb_unlock_flags(task->to, task->from->st_mode, true);

    if (r <= 0 || task->flags & WB_ATTRS_DRY)
        return r < 0 ? r : 1;
    r = wb_copy_attrs(task->from_dir, task->from_name, task->from, task->to, task->flags | WB_ATTRS_DRY, &what);
    if (r > 0)
        r = wb_unlock_flags(task->to, task->from->st_mode, false);
    if (r < 0)
        task->what = "the flags (chattr)";
    return r;
}

int wb_copy_attrs(int from_dir, const char *from_name, const struct stat *from, int to, unsigned flags,
                  const char **what)
{
    _cleanup_fd_ int from_fd = wb_fd_hold(from_dir, from_name, NULL);
    struct task task = {.from_fd = from_fd, .to = to, .from_dir = from_dir, .from_name = from_name, .from = from,
                        .flags = flags};
    struct stat have;
    mode_t mode;
    int r;

    if (from_fd < 0 || fstat(to, &have) < 0) {
        *what = "the attributes";
        return from_fd < 0 ? from_fd : -errno;
    }
    if (!(flags & (WB_ATTRS_LENIENT | WB_ATTRS_NO_FLAGS))) {
        r = unlock(&task);
        if (r <= 0) {
            *what = task.what;
            return r;
        }
    }
    mode = copy_owner(&task, &have);
    copy_xattrs(&task, false);
    copy_mode(&task, mode);
    copy_xattrs(&task, true);
    copy_times(&task, &have);
    if (!(flags & (WB_ATTRS_LENIENT | WB_ATTRS_NO_FLAGS)))
        copy_flags(&task);
    *what = task.what;
    return task.error < 0 ? task.error : task.changed;
}
