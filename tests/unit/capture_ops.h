/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

/* Changes of a tree by programs, recorded as the daemon would, in one call each. */

#include "capture_tree.h"
#include <sys/xattr.h>

/* The actor of the changes that follow: an index into the actors. */
static uint32_t op_actor;
/* Content is changed through a file that is open since an earlier change. */
static bool op_amid;

static inline void op_birth(struct tree *tree, const char *path, enum wb_op op)
{
    struct wb_change change;
    const char *name;
    struct wb_dir *dir = tree_parent(tree, path, &name);
    int r;

    ck_assert_int_eq(wb_capture_birth(tree->store, &change, dir, name, op, op_actor), 0);
    if (op == WB_OP_MKDIR) {
        r = mkdirat(dir->fd, name, 0755);
    } else {
        r = openat(tree->fd, path, O_CREAT | O_EXCL | O_RDWR, 0644);
        close(r);
    }
    ck_assert_int_ge(r, 0);
    wb_capture_end(&change, 0);
}

static inline void op_write(struct tree *tree, const char *path, uint64_t offset, const char *text)
{
    struct wb_change change;
    struct wb_target target;
    struct wb_overwrite overwrite = {.op = WB_OP_WRITE, .offset = offset, .length = strlen(text), .new_data = text,
                                     .begins = !op_amid};
    int fd = tree_target(tree, path, O_RDWR, &target), r;
    struct stat st;

    ck_assert_int_eq(fstat(fd, &st), 0);
    overwrite.size_after = MAX((uint64_t)st.st_size, offset + overwrite.length);
    r = wb_capture_content(tree->store, &change, &target, fd, &overwrite, op_actor);
    ck_assert_int_ge(r, 0);
    ck_assert_int_eq(pwrite(fd, text, overwrite.length, (off_t)offset), (ssize_t)overwrite.length);
    wb_capture_end(&change, 0);
    close(fd);
}

static inline void op_truncate(struct tree *tree, const char *path, uint64_t size)
{
    struct wb_change change;
    struct wb_target target;
    struct wb_overwrite overwrite = {
        .op = WB_OP_TRUNCATE, .offset = size, .length = UINT64_MAX - size, .size_after = size, .begins = !op_amid};
    int fd = tree_target(tree, path, O_RDWR, &target);

    ck_assert_int_ge(wb_capture_content(tree->store, &change, &target, fd, &overwrite, op_actor), 0);
    ck_assert_int_eq(ftruncate(fd, (off_t)size), 0);
    wb_capture_end(&change, 0);
    close(fd);
}

/* A new file with some content. */
static inline void op_make(struct tree *tree, const char *path, const char *text)
{
    op_birth(tree, path, WB_OP_CREATE);
    op_amid = true;
    if (*text)
        op_write(tree, path, 0, text);
    op_amid = false;
}

static inline void op_chmod(struct tree *tree, const char *path, mode_t mode)
{
    struct wb_change change;
    struct wb_target target;
    int fd = tree_target(tree, path, O_RDONLY, &target);

    ck_assert_int_ge(wb_capture_attrs(tree->store, &change, &target, fd, WB_OP_CHMOD, op_actor), 0);
    ck_assert_int_eq(fchmodat(tree->fd, path, mode, 0), 0);
    wb_capture_end(&change, 0);
    close(fd);
}

static inline void op_setxattr(struct tree *tree, const char *path, const char *name, const char *value)
{
    struct wb_change change;
    struct wb_target target;
    int fd = tree_target(tree, path, O_RDONLY, &target);

    ck_assert_int_ge(
        wb_capture_xattr(tree->store, &change, &target, fd, name, WB_OP_SETXATTR, op_actor), 0);
    ck_assert_int_eq(fsetxattr(fd, name, value, strlen(value), 0), 0);
    wb_capture_end(&change, 0);
    close(fd);
}

static inline void op_link(struct tree *tree, const char *from, const char *to)
{
    struct wb_change change;
    struct wb_target target;
    const char *from_name, *to_name;
    struct wb_dir *dir = tree_parent(tree, to, &to_name);
    int fd = tree_target(tree, from, O_PATH, &target);

    tree_parent(tree, from, &from_name);
    ck_assert_int_ge(
        wb_capture_link(tree->store, &change, dir, to_name, &target, fd, from_name, op_actor), 0);
    ck_assert_int_eq(linkat(tree->fd, from, tree->fd, to, 0), 0);
    wb_capture_end(&change, 0);
    close(fd);
}

static inline void op_remove(struct tree *tree, const char *path, bool is_dir)
{
    const char *name;
    struct wb_dir *dir = tree_parent(tree, path, &name);

    ck_assert_int_eq(wb_capture_remove(tree->store, dir, name, is_dir, op_actor), 0);
}

static inline void op_rename(struct tree *tree, const char *from, const char *to, unsigned flags)
{
    const char *from_name, *to_name;
    struct wb_dir *from_dir = tree_parent(tree, from, &from_name);
    struct wb_dir *to_dir = tree_parent(tree, to, &to_name);
    struct wb_dir *moved = NULL, *other = NULL;
    struct stat st;

    if (fstatat(tree->fd, from, &st, AT_SYMLINK_NOFOLLOW) == 0 && S_ISDIR(st.st_mode))
        moved = tree_dir(tree, from);
    if (flags & RENAME_EXCHANGE && fstatat(tree->fd, to, &st, AT_SYMLINK_NOFOLLOW) == 0 &&
        S_ISDIR(st.st_mode))
        other = tree_dir(tree, to);
    ck_assert_int_eq(wb_capture_rename(tree->store, from_dir, from_name, to_dir, to_name, flags, moved,
                                       other, op_actor),
                     0);
}
