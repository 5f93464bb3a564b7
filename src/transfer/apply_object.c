/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Objects: those that the copy does not have are made, without a name; all get content and attributes. Bytes that are
 * as they are to be are left alone: whoever reads the past at that moment relies on it.
 */
#include "transfer/apply.h"

#include "base/cleanup.h"
#include "base/io.h"
#include "store/bundle.h"
#include "store/flags.h"
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/xattr.h>
#include <unistd.h>

#define BLOCK 4096

struct shaping {
    struct wb_applying *applying;
    bool making;                  /* the first step: what is not there yet */
    struct wb_stream_object body; /* the object told last                  */
    bool left_alone;              /* or there is none                      */
    struct wb_copied copied;      /* else: what is known of it             */
    int fd;                       /* O_PATH, or of a file for writing      */
    struct wb_flags flags;        /* of the inode, if has_flags            */
    bool has_flags;
    uint8_t *old;
};

static struct timespec timespec_of(int64_t when)
{
    struct timespec time = {when / 1000000000, when % 1000000000};

    if (time.tv_nsec < 0) {
        time.tv_sec--;
        time.tv_nsec += 1000000000;
    }
    return time;
}

/* ---- attributes ------------------------------------------------------------------------------------- */

/* Where an attribute is larger than the file system knows them, ext4 and others tell that there is no room. */
static bool has_room(const struct shaping *shaping)
{
    struct statvfs device;

    return fstatvfs(shaping->applying->tree.dir_fd, &device) == 0 && device.f_bavail > 64;
}

/* What the file system, or who receives, may not have is counted. */
static int take(struct shaping *shaping, int r)
{
    if (r == 0)
        return 0;
    if (errno == EPERM || errno == EOPNOTSUPP || errno == EINVAL || errno == EACCES || errno == E2BIG ||
        errno == ERANGE) {
        shaping->applying->result->refused++;
        return 0;
    }
    return -errno;
}

static int set_attrs(struct shaping *shaping)
{
    const struct wb_attrs *attrs = &shaping->body.attrs;
    struct timespec times[2] = {timespec_of(attrs->atime), timespec_of(attrs->mtime)};
    mode_t mode = attrs->mode & 07777;
    struct stat st;
    char path[32];
    int r;

    r = take(shaping, fchownat(shaping->fd, "", attrs->uid, attrs->gid, AT_EMPTY_PATH | AT_SYMLINK_NOFOLLOW));
    if (r == 0 && fstat(shaping->fd, &st) < 0)
        r = -errno;
    /* What runs as its owner must not run as who receives: what it does is up to who sends. */
    if (r == 0 && !S_ISDIR(attrs->mode) && (geteuid() != 0 || st.st_uid != attrs->uid))
        mode &= ~(mode_t)S_ISUID;
    if (r == 0 && !S_ISDIR(attrs->mode) && (geteuid() != 0 || st.st_gid != attrs->gid))
        mode &= ~(mode_t)S_ISGID;
    shaping->applying->result->refused += mode != (attrs->mode & 07777);
    if (r == 0 && !S_ISLNK(attrs->mode))
        r = take(shaping, chmod(wb_fd_path(shaping->fd, path), mode));
    if (r == 0)
        r = take(shaping, utimensat(shaping->fd, "", times, AT_EMPTY_PATH | AT_SYMLINK_NOFOLLOW));
    return r;
}

static int open_for_flags(struct shaping *shaping)
{
    char path[32];

    return open(wb_fd_path(shaping->fd, path), O_RDONLY | O_NONBLOCK | O_CLOEXEC);
}

/*
 * Some flags can only be set while a file is empty, so a new one gets them before its content. Here a failure does not
 * count: the flags are compared again at the end.
 */
static void set_flags_early(struct shaping *shaping)
{
    _cleanup_close_ int fd = shaping->has_flags ? open_for_flags(shaping) : -1;

    if (fd >= 0)
        (void)!wb_flags_set(fd, &shaping->flags, false);
}

/* What the store keeps gets no locks, since it could never be deleted. */
static int set_flags(struct shaping *shaping, int fd)
{
    const struct wb_flags none = {0};
    int r = wb_flags_set(fd, &shaping->flags, !(shaping->body.flags & WB_STREAM_BURIED));

    if (r >= 0 || (r == -EOPNOTSUPP && memcmp(&shaping->flags, &none, sizeof(none)) == 0))
        return 0;
    errno = -r;
    return take(shaping, -1);
}

/* Attributes, then the flags: an immutable file takes no other change. */
static int set_attrs_and_flags(struct shaping *shaping)
{
    /* The mode may forbid this to an ordinary user. */
    _cleanup_close_ int fd = shaping->has_flags ? open_for_flags(shaping) : -1;
    int r = shaping->has_flags && fd < 0 ? take(shaping, -1) : 0;

    if (r == 0)
        r = set_attrs(shaping);
    return r == 0 && fd >= 0 ? set_flags(shaping, fd) : r;
}

static int finish(struct shaping *shaping)
{
    int r = !shaping->left_alone && !shaping->making && shaping->fd >= 0 ? set_attrs_and_flags(shaping) : 0;

    wb_close_fd(&shaping->fd);
    shaping->left_alone = true;
    shaping->has_flags = false;
    return r;
}

/* Whether the list has that name; *ret its value. */
static bool find_xattr(const struct wb_stream_list *list, const char *name, struct wb_stream_xattr *ret)
{
    size_t position = 0;

    for (uint32_t i = 0; i < list->count; i++) {
        wb_stream_next_xattr(list, &position, ret);
        if (strlen(name) == ret->name_length && memcmp(name, ret->name, ret->name_length) == 0)
            return true;
    }
    return false;
}

static int remove_xattrs(struct shaping *shaping, const char *path, const struct wb_stream_list *list)
{
    g_autofree char *names = g_try_malloc(1 << 16);
    ssize_t length = names ? listxattr(path, names, 1 << 16) : -1;
    struct wb_stream_xattr xattr;
    int r = 0;

    for (const char *name = names; r == 0 && name < names + MAX(length, 0); name += strlen(name) + 1)
        if (!find_xattr(list, name, &xattr))
            r = take(shaping, removexattr(path, name));
    return r;
}

static int set_xattr(struct shaping *shaping, const char *path, const char *name, const struct wb_stream_xattr *xattr)
{
    int r = setxattr(path, name, xattr->value, xattr->value_length, 0);

    /* An older value is not what it is to be either. */
    if (r < 0 && (errno == ENOSPC || errno == E2BIG || errno == ERANGE) && has_room(shaping)) {
        (void)!removexattr(path, name);
        errno = E2BIG;
    }
    return take(shaping, r);
}

/* chown(2) takes file capabilities away: it comes before, and the rights of an ACL are those of the mode. */
static int set_xattrs(struct shaping *shaping, const struct wb_stream_list *list)
{
    g_autofree uint8_t *old = g_try_malloc(1 << 16);
    size_t position = 0;
    char path[32];
    int r;

    if (!old)
        return -ENOMEM;
    wb_fd_path(shaping->fd, path);
    r = take(shaping, fchownat(shaping->fd, "", shaping->body.attrs.uid, shaping->body.attrs.gid,
                               AT_EMPTY_PATH | AT_SYMLINK_NOFOLLOW));
    if (r == 0)
        r = remove_xattrs(shaping, path, list);
    for (uint32_t i = 0; r == 0 && i < list->count; i++) {
        char name[WB_NAME_MAX + 1];
        struct wb_stream_xattr xattr;
        ssize_t length;

        wb_stream_next_xattr(list, &position, &xattr);
        memcpy(name, xattr.name, xattr.name_length);
        name[xattr.name_length] = '\0';
        if (strcmp(name, WB_FLAGS_NAME) == 0)
            continue;
        length = getxattr(path, name, old, 1 << 16);
        if (length < 0 || (size_t)length != xattr.value_length || memcmp(old, xattr.value, (size_t)length) != 0)
            r = set_xattr(shaping, path, name, &xattr);
    }
    return r;
}

/* ---- content ----------------------------------------------------------------------------------------- */

static int write_new(int fd, const struct wb_stream_bytes *bytes)
{
    int r = 0;

    for (size_t at = 0; r == 0 && at < bytes->length; at += BLOCK) {
        size_t length = MIN(BLOCK, bytes->length - at);

        if (!wb_is_zero(bytes->data + at, length))
            r = wb_pwrite_full(fd, bytes->data + at, length, bytes->offset + at);
    }
    return r;
}

static int write_changed(struct shaping *shaping, const struct wb_stream_bytes *bytes)
{
    size_t there;
    int r = wb_pread_full(shaping->fd, shaping->old, bytes->length, bytes->offset, &there);

    for (size_t at = 0; r == 0 && at < bytes->length; at += BLOCK) {
        size_t length = MIN(BLOCK, bytes->length - at);

        if (at + length > there || memcmp(shaping->old + at, bytes->data + at, length) != 0)
            r = wb_pwrite_full(shaping->fd, bytes->data + at, length, bytes->offset + at);
    }
    return r;
}

static int write_hole(struct shaping *shaping, const struct wb_stream_hole *hole)
{
    if (shaping->left_alone)
        return 0;
    if (!S_ISREG(shaping->body.attrs.mode) || !wb_object_equal(hole->object, shaping->body.object))
        return -EBADMSG;
    /* What was made in this run begins as a hole. */
    return shaping->copied.fresh ? 0 : wb_apply_zeros(shaping->fd, hole->offset, hole->length);
}

static int write_content(struct shaping *shaping, const struct wb_stream_bytes *bytes)
{
    if (shaping->left_alone)
        return 0;
    if (!S_ISREG(shaping->body.attrs.mode) || !wb_object_equal(bytes->object, shaping->body.object) ||
        bytes->offset + bytes->length > shaping->body.attrs.size)
        return -EBADMSG;
    /* What was made in this run got it then. */
    if (shaping->copied.fresh)
        return shaping->making ? write_new(shaping->fd, bytes) : 0;
    return write_changed(shaping, bytes);
}

/* ---- objects ------------------------------------------------------------------------------------------ */

static int make(struct shaping *shaping, const struct wb_stream_object *body)
{
    const struct wb_attrs *attrs = &body->attrs;
    int stage_fd = shaping->applying->tree.stage_fd, r;
    g_autofree char *target = NULL;
    char name[WB_OBJECT_TEXT_MAX];

    wb_object_print(body->object, name);
    switch (attrs->mode & S_IFMT) {
    case S_IFDIR:
        r = mkdirat(stage_fd, name, 0700);
        break;
    case S_IFLNK:
        target = g_strndup(body->target, body->target_length);
        r = symlinkat(target, stage_fd, name);
        break;
    default:
        r = mknodat(stage_fd, name, (attrs->mode & S_IFMT) | 0600, (dev_t)attrs->rdev);
        break;
    }
    if (r < 0)
        return wb_problem_set(shaping->applying->why, -errno, "a file cannot be made in the copy: %s",
                              g_strerror(errno));
    return wb_copy_tree_add(&shaping->applying->tree, body->object, &shaping->copied);
}

/* Whoever owns a directory in the copy may have put something else there meanwhile. */
static bool is_meant(const struct shaping *shaping)
{
    struct wb_object found;

    return wb_copy_tree_identify(&shaping->applying->tree, shaping->fd, NULL, &found) == 0 &&
           wb_object_equal(found, shaping->body.object);
}

static int open_object(struct shaping *shaping)
{
    bool is_file = S_ISREG(shaping->body.attrs.mode);
    char name[WB_OBJECT_PATH_MAX + WB_NAME_MAX], path[32];
    _cleanup_close_ int dir_fd = -1;
    struct stat st;
    int r = wb_copy_tree_place(&shaping->applying->tree, &shaping->copied, &dir_fd, name);

    if (r == 0)
        r = wb_copy_tree_unlock(dir_fd, name);
    if (r < 0)
        return r;
    shaping->fd = openat(dir_fd, name, O_PATH | O_NOFOLLOW | O_CLOEXEC);
    if (shaping->fd < 0 || fstat(shaping->fd, &st) < 0)
        return -errno;
    if ((st.st_mode & S_IFMT) != (shaping->body.attrs.mode & S_IFMT) || !is_meant(shaping))
        return wb_problem_set(shaping->applying->why, -EXDEV, "%s: it is another one, or of another kind, than it was "
                              "received", name);
    if (is_file) {
        int fd = open(wb_fd_path(shaping->fd, path), O_RDWR | O_NONBLOCK | O_CLOEXEC);

        wb_close_fd(&shaping->fd);
        shaping->fd = fd;
        if (fd < 0)
            return -errno;
        /* What comes is for those only who may read what it was and what it is to be. Where that cannot be set, the
         * mode cannot be either, and is counted then. */
        if (st.st_mode & 07777 & ~shaping->body.attrs.mode)
            (void)!fchmod(fd, st.st_mode & shaping->body.attrs.mode & 07777);
        if ((uint64_t)st.st_size != shaping->body.attrs.size && ftruncate(fd, (off_t)shaping->body.attrs.size) < 0)
            return -errno;
    }
    return 0;
}

/*
 * What the copy has packed (vcompact) is made whole before anything is changed: a bundle that has a name for an object
 * is its content, whatever is written into the file.
 */
static int unpack(struct shaping *shaping)
{
    char grave[WB_OBJECT_PATH_MAX];
    _cleanup_close_ int fd = -1;
    int r;

    if (!S_ISREG(shaping->body.attrs.mode) || shaping->copied.staged || shaping->copied.names)
        return 0;
    wb_copy_grave(&shaping->copied, grave);
    r = wb_copy_tree_unlock(shaping->applying->tree.dir_fd, grave);
    if (r == 0)
        fd = openat(shaping->applying->tree.dir_fd, grave, O_RDWR | O_NONBLOCK | O_NOFOLLOW | O_CLOEXEC);
    if (r == 0)
        r = fd < 0 ? -errno : wb_bundle_unpack_into(shaping->applying->tree.dir_fd, shaping->body.object, fd);
    return r < 0 ? wb_problem_set(shaping->applying->why, r, "%s in the store of the copy cannot be unpacked: %s; see "
                                  "vfsck", grave, g_strerror(-r)) : 0;
}

static int begin(struct shaping *shaping, const struct wb_stream_object *body)
{
    struct wb_copy_tree *tree = &shaping->applying->tree;
    int r = finish(shaping), known = wb_copy_tree_know(tree, body->object, S_ISDIR(body->attrs.mode), &shaping->copied);

    if (r < 0 || known < 0)
        return r < 0 ? r : known;
    shaping->body = *body;
    if (shaping->making) {
        if (S_ISDIR(body->attrs.mode) && geteuid() != 0 && (body->attrs.mode & 0500) != 0500)
            return wb_problem_set(shaping->applying->why, -EACCES, "a directory in it may not be read and searched "
                                  "by its owner: only root can receive it");
        /* Told once more, it is not made once more. */
        if (known)
            return unpack(shaping);
        if (!(body->flags & WB_STREAM_WHOLE))
            return wb_problem_set(shaping->applying->why, -EXDEV, "the stream tells what changed in a file that "
                                  "the copy does not have");
        shaping->left_alone = false;
        r = make(shaping, body);
        return r == 0 ? open_object(shaping) : r;
    }
    if (!known)
        return -EXDEV;
    shaping->left_alone = false;
    shaping->applying->result->objects++;
    return open_object(shaping);
}

static int take_xattrs(struct shaping *shaping, const struct wb_stream_list *list)
{
    int r;

    if (!wb_object_equal(list->object, shaping->body.object))
        return -EBADMSG;
    r = wb_stream_find_flags(list, &shaping->flags);
    if (r < 0)
        return r;
    shaping->has_flags = r > 0;
    if (!shaping->making)
        return set_xattrs(shaping, list);
    set_flags_early(shaping);
    return 0;
}

static int each(const struct wb_stream_body *body, void *data)
{
    struct shaping *shaping = data;

    switch (body->type) {
    case WB_FRAME_OBJECT:
        return begin(shaping, &body->object);
    case WB_FRAME_XATTRS:
        return shaping->left_alone ? 0 : take_xattrs(shaping, &body->list);
    case WB_FRAME_CONTENT:
        return write_content(shaping, &body->bytes);
    case WB_FRAME_HOLE:
        return write_hole(shaping, &body->hole);
    default:
        return 0;
    }
}

static int shape(struct wb_applying *applying, bool making)
{
    struct shaping shaping = {.applying = applying, .making = making, .left_alone = true, .fd = -1,
                              .old = g_try_malloc(WB_FRAME_BYTES_MAX)};
    int r = shaping.old ? wb_apply_each(applying, each, &shaping) : -ENOMEM, end = finish(&shaping);

    g_free(shaping.old);
    return r < 0 ? r : end;
}

int wb_apply_new_objects(struct wb_applying *applying)
{
    return shape(applying, true);
}

int wb_apply_objects(struct wb_applying *applying)
{
    return shape(applying, false);
}
