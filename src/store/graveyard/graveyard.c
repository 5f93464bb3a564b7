/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * The graveyard: removed and replaced inodes are moved into it, never copied, so that each remains the same inode and
 * the cost does not depend on its size.
 */
#include "store/parts.h"
#include "store/tables/manifest.h"

#include "base/cleanup.h"
#include "base/io.h"
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>

struct grave {
    char path[WB_OBJECT_PATH_MAX];
};

static struct grave grave_of(struct wb_object object, bool is_dir)
{
    struct grave grave;

    wb_object_path(object, is_dir ? WB_FILE_DIR : WB_FILE_DATA, grave.path);
    return grave;
}

/* rename(2) without replacement, also on file systems that do not support the flag. Only this process creates names in
 * the graveyard, and the caller excludes others from the name outside. */
static int rename_new(int from_fd, const char *from, int to_fd, const char *to)
{
    struct stat st;

    if (renameat2(from_fd, from, to_fd, to, RENAME_NOREPLACE) == 0)
        return 0;
    if (errno != EINVAL && errno != ENOSYS)
        return -errno;
    if (fstatat(to_fd, to, &st, AT_SYMLINK_NOFOLLOW) == 0)
        return -EEXIST;
    if (errno != ENOENT)
        return -errno;
    return renameat(from_fd, from, to_fd, to) < 0 ? -errno : 0;
}

/*
 * The same for a directory. Moving one to another parent changes its "..", so it must be writable, which rmdir(2) does
 * not require: an owner without that right gets it for the duration of the call.
 */
static int rename_new_dir(int from_fd, const char *from, int to_fd, const char *to)
{
    char link[32];
    struct stat st;
    int r, fd;

    r = rename_new(from_fd, from, to_fd, to);
    if (r != -EACCES)
        return r;
    fd = openat(from_fd, from, O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (fd < 0)
        return r;
    if (fstat(fd, &st) == 0 && !(st.st_mode & S_IWUSR) &&
        chmod(wb_fd_path(fd, link), (st.st_mode & 07777) | S_IWUSR) == 0) {
        r = rename_new(from_fd, from, to_fd, to);
        if (chmod(wb_fd_path(fd, link), st.st_mode & 07777) < 0 && r == 0)
            r = -errno;
    }
    close(fd);
    return r;
}

int wb_grave_bring(int from_fd, const char *name, int to_fd)
{
    return rename_new_dir(from_fd, name, to_fd, name);
}

static int bury_dir(struct wb_store *store, int dir_fd, const char *name, const struct grave *grave)
{
    int r = rename_new_dir(dir_fd, name, store->grave_fd, grave->path);

    if (r != -EEXIST)
        return r;
    /* A directory has one name, so the existing one is not this directory, but the empty remains of a store that was
     * copied back and forth. It is removed if it is empty. */
    if (unlinkat(store->grave_fd, grave->path, AT_REMOVEDIR) < 0)
        return -EIO;
    return rename_new_dir(dir_fd, name, store->grave_fd, grave->path);
}

int wb_grave_bury_name(struct wb_store *store, int dir_fd, const char *name, struct wb_object object,
                       bool is_dir)
{
    struct grave grave = grave_of(object, is_dir);
    int r;

    if (is_dir)
        return bury_dir(store, dir_fd, name, &grave);
    wb_manifest_note_burial(store, object);
    r = rename_new(dir_fd, name, store->grave_fd, grave.path);
    if (r == -EEXIST)
        r = unlinkat(dir_fd, name, 0) < 0 ? -errno : 0;
    return r;
}

int wb_grave_keep_link(struct wb_store *store, int dir_fd, const char *name, struct wb_object object)
{
    struct grave grave = grave_of(object, false);

    wb_manifest_note_burial(store, object);
    if (linkat(dir_fd, name, store->grave_fd, grave.path, 0) < 0 && errno != EEXIST)
        return -errno;
    return 0;
}

int wb_grave_note_gone(const struct wb_store *store, struct wb_object object)
{
    char path[WB_OBJECT_PATH_MAX];
    int fd;

    wb_object_path(object, WB_FILE_GONE, path);
    fd = openat(store->dir_fd, path, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
    if (fd < 0)
        return errno == EEXIST ? 0 : -errno;
    close(fd);
    return 0;
}

int wb_grave_forget_gone(const struct wb_store *store, struct wb_object object)
{
    char path[WB_OBJECT_PATH_MAX];

    wb_object_path(object, WB_FILE_GONE, path);
    return unlinkat(store->dir_fd, path, 0) < 0 && errno != ENOENT ? -errno : 0;
}

int wb_grave_unbury(struct wb_store *store, struct wb_object object, bool is_dir, int dir_fd,
                    const char *name)
{
    struct grave grave = grave_of(object, is_dir);
    struct stat st;
    int r;

    if (is_dir)
        return rename_new_dir(store->grave_fd, grave.path, dir_fd, name);
    if (fstatat(store->grave_fd, grave.path, &st, AT_SYMLINK_NOFOLLOW) < 0)
        return -errno;
    /* The file may change from now on. */
    r = wb_manifest_withdraw_body(store, object, true);
    if (r < 0)
        return r;
    if (st.st_nlink == 1) {
        /* An erasure that was interrupted may have noted that the object is nowhere else. */
        r = wb_grave_forget_gone(store, object);
        return r < 0 ? r : rename_new(store->grave_fd, grave.path, dir_fd, name);
    }
    /* Other names exist: the graveyard keeps its link, as the way to the object through this one. */
    return linkat(store->grave_fd, grave.path, dir_fd, name, 0) < 0 ? -errno : 0;
}

int wb_grave_has(const struct wb_store *store, struct wb_object object, bool is_dir)
{
    struct grave grave = grave_of(object, is_dir);
    struct stat st;

    if (store->grave_fd < 0)
        return 0;
    if (fstatat(store->grave_fd, grave.path, &st, AT_SYMLINK_NOFOLLOW) == 0)
        return 1;
    return errno == ENOENT ? 0 : -errno;
}

int wb_grave_open(const struct wb_store *store, struct wb_object object, bool is_dir, int flags)
{
    struct grave grave = grave_of(object, is_dir);
    int fd;

    if (store->grave_fd < 0)
        return -ENOENT;
    /* A file or a directory is expected; if there is a pipe instead, do not wait for it. */
    fd = openat(store->grave_fd, grave.path, flags | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
    return fd < 0 ? -errno : fd;
}

int wb_grave_sync(struct wb_store *store, struct wb_object object)
{
    struct grave grave = grave_of(object, false);
    _cleanup_close_ int fd = -1;

    *strrchr(grave.path, '/') = '\0';
    fd = openat(store->grave_fd, grave.path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0)
        return -errno;
    return wb_fsync_dir(fd);
}
