/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "transfer/receive/copy_tree.h"

#include "base/cleanup.h"
#include "base/dir.h"
#include "base/held.h"
#include "base/io.h"
#include "store/identity/flags.h"
#include "store/store.h"
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

/* ---- objects --------------------------------------------------------------------------------------- */

int wb_copy_tree_find(const struct wb_copy_tree *tree, struct wb_object object, struct wb_copied *ret)
{
    return wb_table_get(&tree->objects, object, ret);
}

int wb_copy_tree_put(struct wb_copy_tree *tree, const struct wb_copied *copied)
{
    return wb_table_put(&tree->objects, copied);
}

/* Found, or from now on there. 0 or -errno. */
static int get(struct wb_copy_tree *tree, struct wb_object object, bool is_dir, struct wb_copied *ret)
{
    int r = wb_copy_tree_find(tree, object, ret);

    if (r != 0)
        return MIN(r, 0);
    *ret = (struct wb_copied){.object = object, .is_dir = is_dir};
    return wb_copy_tree_put(tree, ret);
}

int wb_copy_tree_add_name(struct wb_copy_tree *tree, struct wb_copied *copied, struct wb_object dir, const char *name)
{
    int r = wb_copy_names_add(&tree->names, &copied->names, dir, name);

    return r < 0 ? r : wb_copy_tree_put(tree, copied);
}

int wb_copy_tree_remove_name(struct wb_copy_tree *tree, struct wb_copied *copied, struct wb_object dir,
                             const char *name)
{
    int r = wb_copy_names_remove(&tree->names, &copied->names, dir, name);

    return r < 0 ? r : wb_copy_tree_put(tree, copied);
}

int wb_copy_tree_identify(const struct wb_copy_tree *tree, int dir_fd, const char *name, struct wb_object *ret)
{
    struct wb_identity identity;
    struct wb_object inode;
    struct stat st;
    int r = wb_object_stat(NULL, dir_fd, name, &inode, NULL, &st);

    if (r < 0)
        return r;
    if (st.st_dev != tree->dev)
        return -EXDEV;
    r = wb_table_get(&tree->bound, inode, &identity);
    if (r == 0)
        r = wb_identities_find(tree->identities, inode, &identity.object);
    if (r > 0)
        *ret = identity.object;
    return r == 0 ? -EXDEV : MIN(r, 0);
}

int wb_copy_tree_know(struct wb_copy_tree *tree, struct wb_object object, bool is_dir, struct wb_copied *ret)
{
    struct wb_copied sought = {.object = object, .is_dir = is_dir};
    char path[WB_OBJECT_PATH_MAX];
    struct wb_object found;
    int r = wb_copy_tree_find(tree, object, ret);

    if (r != 0)
        return r;
    wb_copy_grave(&sought, path);
    if (wb_copy_tree_identify(tree, tree->dir_fd, path, &found) < 0 || !wb_object_equal(found, object))
        return 0;
    r = get(tree, object, is_dir, ret);
    return r < 0 ? r : 1;
}

int wb_copy_tree_know_any(struct wb_copy_tree *tree, struct wb_object object, struct wb_copied *ret)
{
    int r = wb_copy_tree_know(tree, object, false, ret);

    return r == 0 ? wb_copy_tree_know(tree, object, true, ret) : r;
}

static int bind(struct wb_copy_tree *tree, struct wb_object inode, struct wb_object object)
{
    struct wb_identity identity = {inode, object};

    return wb_table_put(&tree->bound, &identity);
}

int wb_copy_tree_add(struct wb_copy_tree *tree, struct wb_object object, struct wb_copied *ret)
{
    char name[WB_OBJECT_TEXT_MAX];
    struct wb_object inode;
    struct stat st;
    int r;

    wb_object_print(object, name);
    r = wb_object_stat(NULL, tree->stage_fd, name, &inode, NULL, &st);
    if (r == 0)
        r = bind(tree, inode, object);
    if (r == 0)
        r = get(tree, object, S_ISDIR(st.st_mode), ret);
    if (r < 0)
        return r;
    ret->staged = ret->fresh = true;
    tree->grown = true;
    return wb_copy_tree_put(tree, ret);
}

/* ---- which inode is which --------------------------------------------------------------------------- */

static int write_identity(const struct wb_identity *identity, void *data)
{
    return wb_identities_put(data, identity);
}

static int write_bound(const void *item, void *data)
{
    return wb_identities_put(data, item);
}

int wb_copy_tree_bind(struct wb_copy_tree *tree)
{
    struct wb_identities_writer *writer;
    int r;

    if (!tree->grown)
        return 0;
    r = wb_identities_begin(&writer, tree->dir_fd, tree->bound.count + wb_identities_count(tree->identities));
    /* Of an inode that was another object before, what is new counts. */
    if (r == 0)
        r = wb_table_each(&tree->bound, write_bound, writer);
    if (r == 0)
        r = wb_identities_each(tree->identities, write_identity, writer);
    if (r == 0)
        r = wb_identities_publish(writer);
    wb_identities_writer_free(writer);
    tree->grown = r < 0;
    return r;
}

/* ---- what is there ---------------------------------------------------------------------------------- */

static bool is_hidden(const struct wb_copy_tree *tree, struct wb_object dir, const char *name)
{
    return wb_object_equal(dir, tree->root) && (strcmp(name, WB_STORE_NAME) == 0 || strcmp(name, WB_STAGING_NAME) == 0);
}

struct walk {
    struct wb_copy_tree *tree;
    struct wb_error *why;
    GArray *waiting; /* struct wb_object: directories. What is below the last of them comes first, so they are few */
};

static int visit(struct walk *walk, int fd, struct wb_object dir, const char *name)
{
    struct wb_object object;
    struct wb_copied copied;
    struct stat st;
    int r = wb_copy_tree_identify(walk->tree, fd, name, &object);

    if (r == -EXDEV)
        return wb_error_set(walk->why, r,
                            "%s: this was not received, so the copy was changed locally; remove it, or "
                            "receive into another directory",
                            name);
    if (r < 0 || fstatat(fd, name, &st, AT_SYMLINK_NOFOLLOW) < 0)
        return wb_error_set(walk->why, r < 0 ? r : -errno, "%s: cannot be read: %s", name,
                            g_strerror(r < 0 ? -r : errno));
    r = get(walk->tree, object, S_ISDIR(st.st_mode), &copied);
    if (r == 0 && wb_object_is_none(dir)) {
        copied.staged = true;
        r = wb_copy_tree_put(walk->tree, &copied);
    } else if (r == 0) {
        r = wb_copy_tree_add_name(walk->tree, &copied, dir, name);
    }
    if (S_ISDIR(st.st_mode))
        g_array_append_val(walk->waiting, object);
    return r < 0 ? wb_error_set(walk->why, r, "the tree of the copy cannot be read: %s", g_strerror(-r)) : 0;
}

static int walk_dir(struct walk *walk, int fd, struct wb_object dir)
{
    _cleanup_closedir_ DIR *stream = wb_opendir_at(fd, ".");
    struct dirent *entry;
    int r = 0;

    if (!stream)
        return wb_error_set(walk->why, -errno, "a directory of the copy cannot be read: %s", g_strerror(errno));
    while (wb_next_entry(stream, &entry, &r)) {
        struct wb_object object;

        if (is_hidden(walk->tree, dir, entry->d_name) ||
            /* The stream itself, and what is half made. */
            (wb_object_is_none(dir) && wb_object_parse(entry->d_name, &object) < 0))
            continue;
        r = visit(walk, fd, dir, entry->d_name);
    }
    return r;
}

static int walk_all(struct wb_copy_tree *tree, struct wb_error *why)
{
    struct walk walk = {.tree = tree, .why = why, .waiting = g_array_new(FALSE, FALSE, sizeof(struct wb_object))};
    int r = walk_dir(&walk, tree->stage_fd, WB_OBJECT_NONE);

    g_array_append_val(walk.waiting, tree->root);
    while (r == 0 && walk.waiting->len > 0) {
        struct wb_object dir = g_array_index(walk.waiting, struct wb_object, walk.waiting->len - 1);
        _cleanup_close_ int fd = wb_copy_tree_open_dir(tree, dir);

        g_array_set_size(walk.waiting, walk.waiting->len - 1);
        r = fd < 0 ? wb_error_set(why, fd, "a directory of the copy cannot be opened: %s", g_strerror(-fd))
                   : walk_dir(&walk, fd, dir);
    }
    g_array_unref(walk.waiting);
    return r;
}

static int open_identities(struct wb_copy_tree *tree)
{
    int64_t damaged;
    int r = wb_identities_open(&tree->identities, tree->dir_fd);

    if (r < 0)
        return r;
    tree->grown = wb_identities_count(tree->identities) == 0;
    damaged = tree->identities ? wb_identities_check(tree->identities) : 0;
    return damaged > 0 ? -EBADMSG : (int)damaged;
}

int wb_copy_tree_open(struct wb_copy_tree *tree, struct wb_error *why)
{
    struct wb_copied root;
    struct wb_object inode;
    struct stat st;
    int r = open_identities(tree);

    if (r < 0)
        return wb_error_set(why, r, "the file " WB_IDENTITIES_NAME " of the copy cannot be read: %s", g_strerror(-r));
    r = wb_object_stat(NULL, tree->root_fd, NULL, &inode, NULL, &st);
    tree->dev = st.st_dev;
    if (r == 0)
        r = wb_table_init(&tree->bound, tree->stage_fd, sizeof(struct wb_identity));
    if (r == 0)
        r = wb_table_init(&tree->objects, tree->stage_fd, sizeof(struct wb_copied));
    if (r == 0)
        r = wb_copy_names_init(&tree->names, tree->stage_fd);
    if (r == 0)
        r = bind(tree, inode, tree->root);
    if (r == 0)
        r = get(tree, tree->root, true, &root);
    return r < 0 ? wb_error_set(why, r, "%s", g_strerror(-r)) : walk_all(tree, why);
}

void wb_copy_tree_close(struct wb_copy_tree *tree)
{
    tree->identities = wb_identities_free(tree->identities);
    wb_table_deinit(&tree->bound);
    wb_table_deinit(&tree->objects);
    wb_copy_names_deinit(&tree->names);
}

/* ---- ways to it --------------------------------------------------------------------------------------- */

int wb_copy_tree_open_dir(const struct wb_copy_tree *tree, struct wb_object dir)
{
    g_autoptr(GPtrArray) names = g_ptr_array_new_with_free_func(g_free);
    struct wb_object sought = dir, found;
    int fd = tree->root_fd, r;

    while (!wb_object_equal(dir, tree->root)) {
        char stage[WB_OBJECT_TEXT_MAX];
        struct wb_copy_name name;
        struct wb_copied copied;

        r = wb_copy_tree_find(tree, dir, &copied);
        if (r <= 0 || !copied.is_dir || (!copied.staged && !copied.names) || names->len > WB_COPY_DEPTH_MAX)
            return r < 0 ? r : -ENOENT;
        if (copied.staged) {
            wb_object_print(dir, stage);
            g_ptr_array_add(names, g_strdup(stage));
            fd = tree->stage_fd;
            break;
        }
        r = wb_copy_names_get(&tree->names, copied.names, &name);
        if (r < 0)
            return r;
        g_ptr_array_add(names, g_strdup(name.name));
        dir = name.dir;
    }
    fd = openat(fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    for (guint i = names->len; fd >= 0 && i-- > 0;) {
        int next = openat(fd, names->pdata[i], O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
        int error = errno;

        close(fd);
        fd = next;
        errno = error;
    }
    if (fd < 0)
        return -errno;
    r = wb_copy_tree_identify(tree, fd, NULL, &found);
    if (r < 0 || !wb_object_equal(found, sought)) {
        close(fd);
        return r < 0 ? r : -EXDEV;
    }
    return fd;
}

int wb_copy_tree_place(const struct wb_copy_tree *tree, const struct wb_copied *copied, int *ret_fd,
                       char ret_name[WB_OBJECT_PATH_MAX + WB_NAME_MAX])
{
    *ret_fd = -1;
    if (wb_object_equal(copied->object, tree->root)) {
        *ret_fd = openat(tree->root_fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        strcpy(ret_name, ".");
    } else if (copied->staged) {
        *ret_fd = openat(tree->stage_fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        wb_object_print(copied->object, ret_name);
    } else if (copied->names) {
        struct wb_copy_name item;
        int r = wb_copy_names_get(&tree->names, copied->names, &item);

        if (r < 0)
            return r;
        *ret_fd = wb_copy_tree_open_dir(tree, item.dir);
        strcpy(ret_name, item.name);
        if (*ret_fd < 0)
            return *ret_fd;
    } else {
        *ret_fd = openat(tree->dir_fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        wb_copy_grave(copied, ret_name);
    }
    return *ret_fd < 0 ? -errno : 0;
}

int wb_copy_tree_hold(const struct wb_copy_tree *tree, int dir_fd, const char *name, struct wb_object object)
{
    _cleanup_close_ int held = wb_hold(dir_fd, name, NULL);
    struct wb_object found;
    int r = held < 0 ? held : wb_copy_tree_identify(tree, held, NULL, &found);

    if (r == 0 && !wb_object_equal(found, object))
        r = -EXDEV;
    return r < 0 ? r : wb_steal_fd(&held);
}

int wb_copy_tree_unlock(int held)
{
    struct stat st;
    mode_t missing;
    int r = wb_flags_clear_locks(held);

    if (r < 0 || geteuid() == 0)
        return r;
    if (fstat(held, &st) < 0)
        return -errno;
    missing = (S_ISDIR(st.st_mode) ? 0700 : S_ISREG(st.st_mode) ? 0600 : 0) & ~st.st_mode;
    return missing ? wb_chmod_fd(held, (st.st_mode & 07777) | missing) : 0;
}

int wb_copy_tree_rebind(struct wb_copy_tree *tree, struct wb_object object, int fd)
{
    struct wb_object inode;
    struct stat st;
    int r = wb_object_stat(NULL, fd, NULL, &inode, NULL, &st);

    if (r == 0)
        r = bind(tree, inode, object);
    tree->grown = tree->grown || r == 0;
    return r;
}
