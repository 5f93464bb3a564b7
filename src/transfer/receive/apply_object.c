/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Objects: those that the copy does not have are made, without a name; all get content and attributes. Bytes that are
 * as they are to be are left alone: whoever reads the past at that moment relies on it.
 */
#include "transfer/receive/apply.h"

#include "base/cleanup.h"
#include "base/held.h"
#include "base/io.h"
#include "base/xattr.h"
#include "store/graveyard/bundle.h"
#include "store/identity/flags.h"
#include <errno.h>
#include <fcntl.h>
#include <linux/fs.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/xattr.h>
#include <unistd.h>

#define BLOCK 4096
#define CAPABILITY "security.capability"
#define RENEWING_NAME "renewing" /* in `receiving`, which is cleared */

enum step {
    MAKE,  /* what is not there yet                                                   */
    RENEW, /* programs with power that are there: a new file with the content alone   */
    SET,   /* content and attributes of all                                           */
};

struct shaping {
    struct wb_applying *applying;
    enum step step;
    struct wb_stream_object body; /* the last OBJECT                       */
    bool left_alone;              /* or there is none                      */
    struct wb_copied copied;      /* else: what is known of it             */
    int fd;                       /* O_PATH, or of a file for writing      */
    bool renewed;                 /* it is a new file in place of another  */
    bool keeps_power;             /* it has the owner and set-id bits it is to have, or more */
    struct wb_flags flags;        /* of the inode, if has_flags            */
    bool has_flags;
    int flags_fd;                 /* to set them, while the end is made    */
    GByteArray *values;           /* extended attributes, if xattrs is not NULL, and their values */
    GArray *xattrs;               /* struct wb_held_xattr */
    struct wb_table renewals;     /* struct wb_object: those with a new file in `receiving` */
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

/* What the file system, or who receives, may not have is counted. */
static int take(struct shaping *shaping, int error)
{
    if (error == -EPERM || error == -EOPNOTSUPP || error == -EINVAL || error == -EACCES || error == -E2BIG ||
        error == -ERANGE) {
        shaping->applying->result->refused++;
        return 0;
    }
    return error;
}

static struct wb_held_attrs attrs_of(const struct shaping *shaping)
{
    const struct wb_attrs *attrs = &shaping->body.attrs;
    struct wb_held_attrs want = {.mode = attrs->mode, .uid = attrs->uid, .gid = attrs->gid,
                                 .times = {timespec_of(attrs->atime), timespec_of(attrs->mtime)}};

    want.has_xattrs = shaping->xattrs;
    want.xattrs = shaping->xattrs ? (const struct wb_held_xattr *)(void *)shaping->xattrs->data : NULL;
    want.xattr_count = shaping->xattrs ? shaping->xattrs->len : 0;
    return want;
}

/* ---- programs --------------------------------------------------------------------------------------- */

/*
 * A program with set-id bits or file capabilities that the copy has is not changed, because who owned the file may have
 * written to it, or have it mapped still. Its names get a new file, made of the stream alone. The new inode is bound to
 * the object before it has the first name, so after a crash both are known, and it is done once more.
 */

#define RENEWED_MAX (WB_OBJECT_TEXT_MAX + 8)

static void print_renewed(struct wb_object object, char name[RENEWED_MAX])
{
    char text[WB_OBJECT_TEXT_MAX];

    /* No id: what is left behind is no object to whoever reads `receiving`, and is cleared. */
    wb_object_print(object, text);
    snprintf(name, RENEWED_MAX, "%s.new", text);
}

/* By what is known of it so far. */
static bool is_to_be_renewed(const struct shaping *shaping)
{
    struct wb_held_attrs want = attrs_of(shaping);

    return wb_held_has_power(&want) && shaping->body.flags & WB_STREAM_WHOLE && !shaping->copied.fresh;
}

static int renew(struct shaping *shaping)
{
    int stage_fd = shaping->applying->tree.stage_fd;
    char name[RENEWED_MAX];

    print_renewed(shaping->body.object, name);
    if (unlinkat(stage_fd, name, 0) < 0 && errno != ENOENT)
        return -errno;
    shaping->fd = wb_held_make(stage_fd, name, S_IFREG, 0, NULL);
    if (shaping->fd < 0)
        return shaping->fd;
    shaping->renewed = true;
    shaping->left_alone = false;
    return ftruncate(shaping->fd, (off_t)shaping->body.attrs.size) < 0 ? -errno : 0;
}

static int note_renewed(struct shaping *shaping)
{
    int r = wb_copy_tree_rebind(&shaping->applying->tree, shaping->body.object, shaping->fd);

    return r == 0 ? wb_table_put(&shaping->renewals, &shaping->body.object) : r;
}

/* The name, which the object has, becomes one of the new file. The directory stays as it is otherwise. */
static int take_name(struct shaping *shaping, int fd, struct wb_object object, int dir_fd, const char *name)
{
    const struct wb_copy_tree *tree = &shaping->applying->tree;
    _cleanup_close_ int old = wb_copy_tree_hold(tree, dir_fd, name, object);
    struct wb_flags flags;
    struct stat dir;
    bool has_flags = wb_flags_read(dir_fd, &flags) == 0;
    int r = old < 0 ? old : fstat(dir_fd, &dir) < 0 ? -errno : wb_flags_clear_locks(old);

    if (r == 0)
        r = wb_copy_tree_unlock(dir_fd);
    if (r == 0 && unlinkat(tree->stage_fd, RENEWING_NAME, 0) < 0 && errno != ENOENT)
        r = -errno;
    if (r == 0)
        r = wb_held_link(fd, tree->stage_fd, RENEWING_NAME);
    if (r == 0)
        r = wb_held_rename(fd, tree->stage_fd, RENEWING_NAME, dir_fd, name, 0);
    if (r < 0)
        return wb_error_set(shaping->applying->why, r, "%s: it cannot be replaced by what was received: %s", name,
                            g_strerror(-r));
    r = wb_chmod_fd(dir_fd, dir.st_mode & 07777);
    if (r == 0 && futimens(dir_fd, (const struct timespec[2]){dir.st_atim, dir.st_mtim}) < 0)
        r = -errno;
    if (r == 0 && has_flags)
        r = MIN(wb_flags_set(dir_fd, &flags, true), 0);
    return r < 0 ? take(shaping, r) : 0;
}

static int take_names(struct shaping *shaping, int fd, const struct wb_copied *copied)
{
    const struct wb_copy_tree *tree = &shaping->applying->tree;
    char grave[WB_OBJECT_PATH_MAX];
    struct stat st;
    int r = 0;

    for (uint64_t at = copied->names; r == 0 && at;) {
        struct wb_copy_name item;
        _cleanup_close_ int dir_fd = -1;

        r = wb_copy_names_get(&tree->names, at, &item);
        if (r == 0)
            r = dir_fd = wb_copy_tree_open_dir(tree, item.dir);
        if (r >= 0)
            r = take_name(shaping, fd, copied->object, dir_fd, item.name);
        if (r == 0)
            r = wb_copy_names_next(&tree->names, at, &at);
    }
    wb_copy_grave(copied, grave);
    if (r == 0 && fstatat(tree->dir_fd, grave, &st, AT_SYMLINK_NOFOLLOW) == 0) {
        const char *name = strrchr(grave, '/') + 1;
        g_autofree char *dir = g_strndup(grave, (gsize)(name - grave));
        _cleanup_close_ int dir_fd = wb_open_beneath(tree->dir_fd, dir, O_RDONLY | O_DIRECTORY);

        r = dir_fd < 0 ? dir_fd : take_name(shaping, fd, copied->object, dir_fd, name);
    }
    return r;
}

static int each_to_take_names(const void *item, void *data)
{
    struct shaping *shaping = data;
    struct wb_copy_tree *tree = &shaping->applying->tree;
    char name[RENEWED_MAX];
    _cleanup_close_ int fd = -1;
    struct wb_copied copied;
    struct wb_object object;
    int r;

    memcpy(&object, item, sizeof(object));
    print_renewed(object, name);
    r = wb_copy_tree_know(tree, object, false, &copied);
    if (r > 0)
        r = fd = wb_open_own(tree->stage_fd, name, O_RDONLY, 0);
    if (r >= 0)
        r = fd < 0 ? -EXDEV : take_names(shaping, fd, &copied);
    if (r == 0 && unlinkat(tree->stage_fd, name, 0) < 0)
        r = -errno;
    copied.fresh = true;
    return r == 0 ? wb_copy_tree_put(tree, &copied) : r;
}

static int take_all_names(struct shaping *shaping)
{
    int r = shaping->renewals.count > 0 ? wb_copy_tree_bind(&shaping->applying->tree) : 0;

    return r == 0 ? wb_table_each(&shaping->renewals, each_to_take_names, shaping) : r;
}

/* ---- attributes ------------------------------------------------------------------------------------- */

/* If an attribute is larger than the file system supports, ext4 and others report ENOSPC. */
static bool has_room(const struct shaping *shaping)
{
    struct statvfs device;

    return fstatvfs(shaping->applying->tree.dir_fd, &device) == 0 && device.f_bavail > 64;
}

static int failed(void *data, const char *what, const char *xattr, int error)
{
    struct shaping *shaping = data;

    (void)what;
    /* An older value is not what it is to be either. */
    if (xattr && (error == -ENOSPC || error == -E2BIG || error == -ERANGE) && has_room(shaping)) {
        wb_removexattr_fd(shaping->fd, xattr);
        error = -E2BIG;
    }
    return take(shaping, error);
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
static int set_flags(void *data, int fd)
{
    const struct wb_flags none = {0};
    struct shaping *shaping = data;
    int r = wb_flags_set(shaping->flags_fd, &shaping->flags, !(shaping->body.flags & WB_STREAM_BURIED));

    (void)fd;
    return r == -EOPNOTSUPP && memcmp(&shaping->flags, &none, sizeof(none)) == 0 ? 0 : r;
}

/*
 * Who owned the file may have written to it, and may have it mapped still. Only what was made of the stream alone gets
 * power from it; a sender of ours sends such a file as a whole.
 */
static void take_power_away(struct shaping *shaping, struct wb_held_attrs *want)
{
    if (shaping->copied.fresh || !wb_held_has_power(want) || shaping->keeps_power)
        return;
    shaping->applying->result->refused++;
    want->mode &= ~(mode_t)(S_ISUID | S_ISGID);
    for (guint i = 0; i < want->xattr_count; i++)
        if (strcmp(want->xattrs[i].name, CAPABILITY) == 0) {
            g_array_remove_index(shaping->xattrs, i);
            want->xattr_count--;
            break;
        }
}

static int set_attrs(struct shaping *shaping)
{
    struct wb_held_setting setting = {.flags = WB_HELD_FOREIGN | WB_HELD_TOUCHED, .failed = failed, .data = shaping};
    struct wb_held_attrs want = attrs_of(shaping);
    int r = 0;

    take_power_away(shaping, &want);
    /* Opened before: the mode may forbid this to an ordinary user. */
    shaping->flags_fd = shaping->has_flags ? open_for_flags(shaping) : -1;
    if (shaping->has_flags && shaping->flags_fd < 0)
        r = take(shaping, -errno);
    if (shaping->flags_fd >= 0)
        setting.set_flags = set_flags;
    if (r == 0)
        r = wb_held_set(shaping->fd, &want, &setting);
    wb_close_fd(&shaping->flags_fd);
    return MIN(r, 0);
}

static void xattr_clear(void *data)
{
    struct wb_held_xattr *xattr = data;

    g_free((char *)xattr->name);
}

static void forget_xattrs(struct shaping *shaping)
{
    if (shaping->xattrs)
        g_array_unref(shaping->xattrs);
    if (shaping->values)
        g_byte_array_unref(shaping->values);
    shaping->xattrs = NULL;
    shaping->values = NULL;
}

/* Kept until the content is there, since file capabilities come last. */
static void keep_xattrs(struct shaping *shaping, const struct wb_stream_list *list)
{
    struct wb_stream_list own = *list;
    size_t position = 0;

    forget_xattrs(shaping);
    shaping->values = g_byte_array_new();
    g_byte_array_append(shaping->values, list->data, (guint)list->length);
    own.data = shaping->values->data;
    shaping->xattrs = g_array_new(FALSE, FALSE, sizeof(struct wb_held_xattr));
    g_array_set_clear_func(shaping->xattrs, xattr_clear);
    for (uint32_t i = 0; i < list->count; i++) {
        struct wb_stream_xattr xattr;
        struct wb_held_xattr held;

        wb_stream_next_xattr(&own, &position, &xattr);
        held = (struct wb_held_xattr){g_strndup(xattr.name, xattr.name_length), xattr.value, xattr.value_length};
        if (strcmp(held.name, WB_FLAGS_NAME) == 0)
            g_free((char *)held.name);
        else
            g_array_append_val(shaping->xattrs, held);
    }
}

static int finish(struct shaping *shaping)
{
    int r = 0;

    if (!shaping->left_alone && shaping->fd >= 0)
        r = shaping->step == SET ? set_attrs(shaping) : shaping->renewed ? note_renewed(shaping) : 0;
    wb_close_fd(&shaping->fd);
    forget_xattrs(shaping);
    shaping->left_alone = true;
    shaping->has_flags = shaping->renewed = shaping->keeps_power = false;
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
    return shaping->copied.fresh || shaping->renewed ? 0 : wb_apply_zeros(shaping->fd, hole->offset, hole->length);
}

static int write_content(struct shaping *shaping, const struct wb_stream_bytes *bytes)
{
    if (shaping->left_alone)
        return 0;
    if (!S_ISREG(shaping->body.attrs.mode) || !wb_object_equal(bytes->object, shaping->body.object) ||
        bytes->offset + bytes->length > shaping->body.attrs.size)
        return -EBADMSG;
    if (shaping->renewed)
        return write_new(shaping->fd, bytes);
    /* What was made in this run got it then. */
    if (shaping->copied.fresh)
        return shaping->step == MAKE ? write_new(shaping->fd, bytes) : 0;
    return write_changed(shaping, bytes);
}

/* ---- objects ------------------------------------------------------------------------------------------ */

static int make(struct shaping *shaping, const struct wb_stream_object *body)
{
    g_autofree char *target = g_strndup(body->target, body->target_length);
    int stage_fd = shaping->applying->tree.stage_fd;
    char name[WB_OBJECT_TEXT_MAX];
    _cleanup_close_ int made = -1;

    wb_object_print(body->object, name);
    made = wb_held_make(stage_fd, name, body->attrs.mode, (dev_t)body->attrs.rdev, target);
    if (made < 0)
        return wb_error_set(shaping->applying->why, made, "a file cannot be created in the copy: %s",
                            g_strerror(-made));
    return wb_copy_tree_add(&shaping->applying->tree, body->object, &shaping->copied);
}

static int open_object(struct shaping *shaping)
{
    bool is_file = S_ISREG(shaping->body.attrs.mode);
    char name[WB_OBJECT_PATH_MAX + WB_NAME_MAX];
    _cleanup_close_ int dir_fd = -1;
    struct stat st;
    int r = wb_copy_tree_place(&shaping->applying->tree, &shaping->copied, &dir_fd, name);

    if (r < 0)
        return r;
    shaping->fd = wb_copy_tree_hold(&shaping->applying->tree, dir_fd, name, shaping->body.object);
    if (shaping->fd < 0 && shaping->fd != -EXDEV)
        return shaping->fd;
    if (shaping->fd < 0 || fstat(shaping->fd, &st) < 0 ||
        (st.st_mode & S_IFMT) != (shaping->body.attrs.mode & S_IFMT))
        return wb_error_set(shaping->applying->why, -EXDEV,
                            "%s: it is not the object that was received, or has "
                            "another type",
                            name);
    r = wb_copy_tree_unlock(shaping->fd);
    if (r == 0 && is_file) {
        int fd = wb_held_open(shaping->fd, O_RDWR);

        wb_close_fd(&shaping->fd);
        shaping->fd = fd;
        if (fd < 0)
            return fd;
        shaping->keeps_power = st.st_uid == shaping->body.attrs.uid && st.st_gid == shaping->body.attrs.gid &&
                               !(shaping->body.attrs.mode & ~st.st_mode & (S_ISUID | S_ISGID));
        /* What comes is for those only who may read what it was and what it is to be. Where that cannot be set, the
         * mode cannot be either, and is counted then. */
        (void)!wb_held_disarm(fd, shaping->body.attrs.mode);
        if ((uint64_t)st.st_size != shaping->body.attrs.size && ftruncate(fd, (off_t)shaping->body.attrs.size) < 0)
            return -errno;
    }
    return r;
}

/*
 * What the copy has packed (vcompact) is made whole before anything is changed: a bundle that has a name for an object
 * is its content, whatever is written into the file.
 */
static int unpack(struct shaping *shaping)
{
    char grave[WB_OBJECT_PATH_MAX];
    _cleanup_close_ int held = -1, fd = -1;
    int r;

    if (!S_ISREG(shaping->body.attrs.mode) || shaping->copied.staged || shaping->copied.names)
        return 0;
    wb_copy_grave(&shaping->copied, grave);
    r = held = wb_hold(shaping->applying->tree.dir_fd, grave, NULL);
    if (r >= 0)
        r = wb_copy_tree_unlock(held);
    if (r == 0)
        r = fd = wb_held_open(held, O_RDWR);
    if (r >= 0)
        r = wb_bundle_unpack_into(shaping->applying->tree.dir_fd, shaping->body.object, fd);
    return r < 0 ? wb_error_set(shaping->applying->why, r,
                                "%s in the store of the copy cannot be unpacked: %s; run "
                                "vfsck",
                                grave, g_strerror(-r))
                 : 0;
}

static int begin(struct shaping *shaping, const struct wb_stream_object *body)
{
    struct wb_copy_tree *tree = &shaping->applying->tree;
    int r = finish(shaping), known = wb_copy_tree_know(tree, body->object, S_ISDIR(body->attrs.mode), &shaping->copied);

    if (r < 0 || known < 0)
        return r < 0 ? r : known;
    shaping->body = *body;
    if (shaping->step == MAKE) {
        shaping->applying->renews |= known && is_to_be_renewed(shaping);
        if (S_ISDIR(body->attrs.mode) && geteuid() != 0 && (body->attrs.mode & 0500) != 0500)
            return wb_error_set(shaping->applying->why, -EACCES,
                                "the owner of a directory in it may not read and "
                                "search it, so only root can receive it");
        /* An object that the stream contains a second time is not created a second time. */
        if (known)
            return unpack(shaping);
        if (!(body->flags & WB_STREAM_WHOLE))
            return wb_error_set(shaping->applying->why, -EXDEV,
                                "the stream has changes of a file that the copy "
                                "does not have");
        shaping->left_alone = false;
        r = make(shaping, body);
        return r == 0 ? open_object(shaping) : r;
    }
    if (!known)
        return -EXDEV;
    if (shaping->step == RENEW)
        return is_to_be_renewed(shaping) ? renew(shaping) : 0;
    shaping->left_alone = false;
    shaping->applying->result->objects++;
    return open_object(shaping);
}

static int take_xattrs(struct shaping *shaping, const struct wb_stream_list *list)
{
    int r;

    /* Of those that a pass is not about, only this is of interest. */
    if (shaping->left_alone && shaping->step == SET)
        return 0;
    if (!wb_object_equal(list->object, shaping->body.object))
        return -EBADMSG;
    keep_xattrs(shaping, list);
    if (shaping->left_alone && shaping->step == MAKE)
        shaping->applying->renews |= is_to_be_renewed(shaping);
    if (shaping->left_alone)
        return shaping->step == RENEW && is_to_be_renewed(shaping) ? renew(shaping) : 0;
    r = wb_stream_find_flags(list, &shaping->flags);
    if (r < 0)
        return r;
    shaping->has_flags = r > 0;
    if (shaping->step == MAKE)
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
        return take_xattrs(shaping, &body->list);
    case WB_FRAME_CONTENT:
        return write_content(shaping, &body->bytes);
    case WB_FRAME_HOLE:
        return write_hole(shaping, &body->hole);
    default:
        return 0;
    }
}

static int shape(struct wb_applying *applying, enum step step)
{
    struct shaping shaping = {.applying = applying, .step = step, .left_alone = true, .fd = -1, .flags_fd = -1,
                              .old = g_try_malloc(WB_FRAME_BYTES_MAX)};
    int r = shaping.old ? wb_table_init(&shaping.renewals, applying->tree.stage_fd, sizeof(struct wb_object)) : -ENOMEM;
    int end;

    if (r == 0)
        r = wb_apply_each(applying, each, &shaping);
    end = finish(&shaping);
    r = r < 0 ? r : end;
    if (r == 0)
        r = take_all_names(&shaping);
    wb_table_deinit(&shaping.renewals);
    g_free(shaping.old);
    return r;
}

int wb_apply_new_objects(struct wb_applying *applying)
{
    return shape(applying, MAKE);
}

int wb_apply_objects(struct wb_applying *applying)
{
    /* Where the first step was done by another run, nobody has looked. */
    int r = applying->renews || applying->again ? shape(applying, RENEW) : 0;

    return r < 0 ? r : shape(applying, SET);
}
