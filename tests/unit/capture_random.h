/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

/* Random changes of a small tree, some of which fail after they were recorded. */

#include "capture_tree.h"
#include <linux/falloc.h>
#include <sys/xattr.h>

struct model {
    struct tree tree;
    GRand *rand;
    GPtrArray *paths;  /* of all existing objects */
    GPtrArray *dirs;   /* "" is the root */
    GArray *dead;      /* struct wb_object of removed files */
    struct wb_change change;
    uint8_t bytes[3 << 20];
};
static struct model model;

static int pick(int below)
{
    return g_rand_int_range(model.rand, 0, below);
}

/* ---- objects --------------------------------------------------------------------------------- */

static void list(const char *path)
{
    g_autofree char *full = g_strdup_printf("%s/%s", model.tree.path, path);
    g_autoptr(GDir) dir = g_dir_open(full, 0, NULL);
    const char *name;

    g_ptr_array_add(model.dirs, g_strdup(path));
    while ((name = g_dir_read_name(dir))) {
        char *child = *path ? g_strdup_printf("%s/%s", path, name) : g_strdup(name);
        struct stat st;

        if (!strcmp(child, WB_STORE_NAME)) {
            g_free(child);
            continue;
        }
        g_ptr_array_add(model.paths, child);
        ck_assert_int_eq(fstatat(model.tree.fd, child, &st, AT_SYMLINK_NOFOLLOW), 0);
        if (S_ISDIR(st.st_mode))
            list(child);
    }
}

static void list_all(void)
{
    g_ptr_array_set_size(model.paths, 0);
    g_ptr_array_set_size(model.dirs, 0);
    list("");
}

static const char *pick_path(void)
{
    return model.paths->len ? model.paths->pdata[pick(model.paths->len)] : NULL;
}

static char *pick_new_path(void)
{
    const char *dir = model.dirs->pdata[pick(model.dirs->len)];

    return g_strdup_printf("%s%s%c", dir, *dir ? "/" : "", "abcdefgh"[pick(8)]);
}

static mode_t type_of(const char *path)
{
    struct stat st;

    return fstatat(model.tree.fd, path, &st, AT_SYMLINK_NOFOLLOW) < 0 ? 0 : st.st_mode & S_IFMT;
}

/* One change in eight fails after it was recorded. */
static bool goes_wrong(void)
{
    if (model.change.when == 0 || pick(8))
        return false;
    wb_capture_end(&model.change, -EIO);
    return true;
}

static void end(int result)
{
    wb_capture_end(&model.change, result < 0 ? -errno : 0);
}

/* ---- names ----------------------------------------------------------------------------------- */

static void do_birth(void)
{
    static const enum wb_op ops[] = {WB_OP_CREATE, WB_OP_CREATE, WB_OP_MKDIR, WB_OP_SYMLINK, WB_OP_MKNOD};
    enum wb_op op = ops[pick(5)];
    g_autofree char *path = pick_new_path();
    const char *name;
    struct wb_dir *dir = tree_parent(&model.tree, path, &name);
    int r = wb_capture_birth(model.tree.store, &model.change, dir, name, op, 0), fd;

    if (type_of(path)) {
        ck_assert_int_eq(r, -EEXIST);
        return;
    }
    ck_assert_int_eq(r, 0);
    if (goes_wrong())
        return;
    if (op == WB_OP_CREATE) {
        fd = openat(dir->fd, name, O_CREAT | O_EXCL | O_RDWR, 0644);
        close(fd);
        end(fd);
    } else if (op == WB_OP_MKDIR) {
        end(mkdirat(dir->fd, name, 0755));
    } else if (op == WB_OP_SYMLINK) {
        end(symlinkat("target", dir->fd, name));
    } else {
        end(mknodat(dir->fd, name, S_IFIFO | 0600, 0));
    }
}

static void do_link(void)
{
    const char *from = pick_path(), *name, *from_name;
    g_autofree char *path = pick_new_path();
    struct wb_dir *dir = tree_parent(&model.tree, path, &name);
    struct wb_target source;
    int fd, r;

    if (!from || type_of(from) == S_IFDIR)
        return;
    tree_parent(&model.tree, from, &from_name);
    fd = tree_target(&model.tree, from, O_PATH, &source);
    r = wb_capture_link(model.tree.store, &model.change, dir, name, &source, fd, from_name, 0);
    close(fd);
    ck_assert_int_eq(r, type_of(path) ? -EEXIST : 0);
    if (r == 0 && !goes_wrong())
        end(linkat(source.parent->fd, from_name, dir->fd, name, 0));
}

static void do_remove(void)
{
    const char *path = pick_path(), *name;
    bool is_dir = path && type_of(path) == S_IFDIR;
    struct wb_object object;
    struct wb_dir *dir;
    int r;

    if (!path)
        return;
    object = tree_object(&model.tree, path);
    dir = tree_parent(&model.tree, path, &name);
    r = wb_capture_remove(model.tree.store, dir, name, !is_dir, 0);
    ck_assert_int_eq(r, is_dir ? -EISDIR : -ENOTDIR);
    r = wb_capture_remove(model.tree.store, dir, name, is_dir, 0);
    ck_assert(r == 0 || (is_dir && r == -ENOTEMPTY));
    ck_assert_int_eq(type_of(path) == 0, r == 0);
    if (r == 0 && !is_dir)
        g_array_append_val(model.dead, object);
}

static void do_rename(void)
{
    static const unsigned all_flags[] = {0, 0, 0, RENAME_NOREPLACE, RENAME_EXCHANGE, RENAME_WHITEOUT};
    unsigned flags = all_flags[pick(6)];
    const char *from = pick_path(), *old_name, *new_name;
    g_autofree char *to = pick(2) && from ? g_strdup(pick_path()) : pick_new_path();
    struct wb_dir *old_dir, *new_dir, *moved = NULL, *other = NULL;
    struct wb_object object = {0};
    bool same;
    int r;

    if (!from)
        return;
    if (type_of(to) && type_of(to) != S_IFDIR)
        object = tree_object(&model.tree, to);
    same = type_of(to) && wb_object_equal(tree_object(&model.tree, to), tree_object(&model.tree, from));
    old_dir = tree_parent(&model.tree, from, &old_name);
    new_dir = tree_parent(&model.tree, to, &new_name);
    if (type_of(from) == S_IFDIR && pick(2))
        moved = tree_dir(&model.tree, from);
    if (type_of(to) == S_IFDIR && pick(2))
        other = tree_dir(&model.tree, to);
    r = wb_capture_rename(model.tree.store, old_dir, old_name, new_dir, new_name, flags, moved, other, 0);
    ck_assert_msg(r == 0 || r == -EEXIST || r == -ENOENT || r == -EINVAL || r == -ENOTEMPTY ||
                      r == -EISDIR || r == -ENOTDIR, "rename %s %s: %d", from, to, r);
    if (r == 0 && !same && !(flags & RENAME_EXCHANGE) && object.ino)
        g_array_append_val(model.dead, object);
}

static void do_restore(void)
{
    g_autofree char *path = pick(2) && model.paths->len ? g_strdup(pick_path()) : pick_new_path();
    struct wb_object object;
    struct wb_dir *dir;
    const char *name;
    int r, there;

    if (!model.dead->len)
        return;
    object = g_array_index(model.dead, struct wb_object, pick(model.dead->len));
    dir = tree_parent(&model.tree, path, &name);
    there = wb_grave_has(model.tree.store, object, false);
    r = wb_capture_restore(model.tree.store, dir, name, object, false, -1, NULL, 0);
    if (r == 0)
        ck_assert(wb_object_equal(tree_object(&model.tree, path), object));
    else
        ck_assert_int_eq(r, type_of(path) == S_IFDIR ? -EISDIR : there ? 0 : -ENOENT);
}

/* ---- content and attributes ------------------------------------------------------------------ */

static int change_content(int fd, const struct wb_overwrite *overwrite)
{
    switch (overwrite->op) {
    case WB_OP_WRITE:
        return wb_pwrite_full(fd, overwrite->new_data, overwrite->length, overwrite->offset);
    case WB_OP_TRUNCATE:
        return ftruncate(fd, (off_t)overwrite->size_after);
    case WB_OP_ALLOCATE:
        return fallocate(fd, 0, (off_t)overwrite->offset, (off_t)overwrite->length);
    case WB_OP_PUNCH:
        return fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, (off_t)overwrite->offset,
                         (off_t)overwrite->length);
    case WB_OP_ZERO:
        return fallocate(fd, FALLOC_FL_ZERO_RANGE, (off_t)overwrite->offset, (off_t)overwrite->length);
    default:
        return fallocate(fd, FALLOC_FL_COLLAPSE_RANGE, (off_t)overwrite->offset, 4096);
    }
}

static void fill(uint8_t *bytes, size_t length)
{
    for (size_t i = 0; i < length;) {
        size_t n = MIN(length - i, (size_t)g_rand_int_range(model.rand, 1, 3000));

        memset(bytes + i, pick(3) ? pick(256) : 0, n);
        i += n;
    }
}

static void do_content(void)
{
    static const enum wb_op ops[] = {WB_OP_WRITE, WB_OP_WRITE, WB_OP_WRITE, WB_OP_TRUNCATE, WB_OP_ALLOCATE,
                                     WB_OP_PUNCH, WB_OP_ZERO, WB_OP_COLLAPSE};
    struct wb_overwrite overwrite = {.op = ops[pick(8)]};
    const char *path = pick_path();
    struct wb_target target;
    struct stat st;
    uint64_t end_of;
    int fd, r, scale;

    if (!path || type_of(path) != S_IFREG)
        return;
    fd = tree_target(&model.tree, path, O_RDWR, &target);
    ck_assert_int_eq(fstat(fd, &st), 0);
    scale = pick(12) ? 9000 : 1500000;
    /* mostly inside the file: only there can bytes be lost */
    overwrite.offset =
        pick(4) == 0 ? (uint64_t)st.st_size : (uint64_t)pick(pick(4) && st.st_size ? (int)st.st_size : scale);
    overwrite.length = 1 + pick(pick(2) ? scale / 10 : scale);
    end_of = overwrite.offset + overwrite.length;
    overwrite.size_after = MAX((uint64_t)st.st_size, end_of);
    switch (overwrite.op) {
    case WB_OP_WRITE:
        fill(model.bytes, overwrite.length);
        if (!pick(4)) /* most of the existing ones */
            ck_assert_int_ge(pread(fd, model.bytes, overwrite.length, (off_t)overwrite.offset), 0);
        overwrite.new_data = model.bytes;
        break;
    case WB_OP_TRUNCATE:
        overwrite.size_after = pick(4) ? overwrite.offset : 0;
        break;
    case WB_OP_PUNCH:
        overwrite.size_after = st.st_size;
        overwrite.to_zero = true;
        break;
    case WB_OP_ZERO:
        overwrite.to_zero = true;
        break;
    case WB_OP_COLLAPSE:
        overwrite.offset &= ~UINT64_C(4095);
        overwrite.length = UINT64_MAX - overwrite.offset;
        overwrite.size_after = st.st_size > 4096 ? st.st_size - 4096 : st.st_size;
        break;
    default:
        break;
    }
    r = wb_capture_content(model.tree.store, &model.change, &target, fd, &overwrite, 0);
    ck_assert_int_eq(r, 0);
    if (!goes_wrong())
        end(change_content(fd, &overwrite));
    close(fd);
}

static void do_attrs(void)
{
    static const enum wb_op ops[] = {WB_OP_CHMOD, WB_OP_CHOWN, WB_OP_UTIMENS, WB_OP_SETXATTR, WB_OP_REMOVEXATTR};
    const char *path = pick(6) && model.paths->len ? pick_path() : "";
    struct timespec times[2] = {{.tv_nsec = UTIME_OMIT}, {.tv_sec = pick(1000000), .tv_nsec = pick(1000)}};
    enum wb_op op = ops[pick(5)];
    char name[] = "user.x", value[8], fd_path[32];
    struct wb_target target;
    int fd, r;

    if (type_of(*path ? path : ".") == S_IFLNK && op != WB_OP_UTIMENS)
        return;
    if (op >= WB_OP_SETXATTR && type_of(*path ? path : ".") != S_IFREG && type_of(*path ? path : ".") != S_IFDIR)
        return;
    fd = tree_target(&model.tree, path, O_PATH, &target);
    name[5] = (char)('x' + pick(2));
    wb_fd_path(fd, fd_path);
    g_snprintf(value, sizeof(value), "%d", pick(1000));
    if (op >= WB_OP_SETXATTR)
        r = wb_capture_xattr(model.tree.store, &model.change, &target, fd, name, op, 0);
    else
        r = wb_capture_attrs(model.tree.store, &model.change, &target, fd, op, 0);
    ck_assert_msg(r == 0 || (r == -ENODATA && op == WB_OP_REMOVEXATTR), "attrs %d: %d", op, r);
    if (r == 0 && !goes_wrong()) {
        if (op == WB_OP_CHMOD)
            end(chmod(fd_path, 0700 | pick(64)));
        else if (op == WB_OP_CHOWN)
            end(geteuid() == 0 ? chown(fd_path, pick(3), pick(3)) : 0);
        else if (op == WB_OP_UTIMENS)
            end(utimensat(fd, "", times, AT_EMPTY_PATH));
        else if (op == WB_OP_SETXATTR)
            end(setxattr(fd_path, name, value, strlen(value), 0));
        else
            end(removexattr(fd_path, name));
    }
    close(fd);
}

/* ---- one change ------------------------------------------------------------------------------ */

static void step(void)
{
    static void (*const all[])(void) = {do_birth,   do_birth,  do_birth,   do_link,    do_remove,  do_rename, do_rename,
                                        do_restore, do_content, do_content, do_content, do_content, do_attrs,  do_attrs};

    list_all();
    all[pick(G_N_ELEMENTS(all))]();
    wb_capture_end(&model.change, 0);
    tree_release(&model.tree);
}

static inline void model_init(void)
{
    model.paths = g_ptr_array_new_with_free_func(g_free);
    model.dirs = g_ptr_array_new_with_free_func(g_free);
    model.dead = g_array_new(FALSE, FALSE, sizeof(struct wb_object));
}
