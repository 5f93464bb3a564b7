/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "transfer/copy_tree.h"

#include "base/cleanup.h"
#include "base/io.h"
#include "store/store.h"
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

static guint object_hash(const void *key)
{
    const struct wb_object *object = key;

    return (guint)((object->ino ^ (uint64_t)object->birth * 31) * UINT64_C(0x9e3779b97f4a7c15) >> 32);
}

static gboolean object_equal(const void *a, const void *b)
{
    return wb_object_equal(*(const struct wb_object *)a, *(const struct wb_object *)b);
}

static void copied_free(void *data)
{
    struct wb_copied *copied = data;

    g_array_unref(copied->names);
    g_free(copied);
}

/* ---- objects --------------------------------------------------------------------------------------- */

struct wb_copied *wb_copy_tree_find(const struct wb_copy_tree *tree, struct wb_object object)
{
    return g_hash_table_lookup(tree->objects, &object);
}

static struct wb_copied *get(struct wb_copy_tree *tree, struct wb_object object, bool is_dir)
{
    struct wb_copied *copied = wb_copy_tree_find(tree, object);

    if (copied)
        return copied;
    copied = g_new0(struct wb_copied, 1);
    copied->object = object;
    copied->is_dir = is_dir;
    copied->names = g_array_new(FALSE, FALSE, sizeof(struct wb_copy_name));
    g_hash_table_add(tree->objects, copied);
    return copied;
}

void wb_copied_add_name(struct wb_copied *copied, struct wb_object dir, const char *name)
{
    struct wb_copy_name item = {.dir = dir};

    g_strlcpy(item.name, name, sizeof(item.name));
    g_array_append_val(copied->names, item);
}

void wb_copied_remove_name(struct wb_copied *copied, struct wb_object dir, const char *name)
{
    for (guint i = 0; i < copied->names->len; i++) {
        const struct wb_copy_name *item = &g_array_index(copied->names, struct wb_copy_name, i);

        if (wb_object_equal(item->dir, dir) && strcmp(item->name, name) == 0) {
            g_array_remove_index_fast(copied->names, i);
            return;
        }
    }
}

int wb_copy_tree_identify(const struct wb_copy_tree *tree, int dir_fd, const char *name, struct wb_object *ret)
{
    const struct wb_identity *identity;
    struct wb_object inode;
    struct stat st;
    int r = wb_object_stat(NULL, dir_fd, name, &inode, NULL, &st);

    if (r < 0)
        return r;
    identity = st.st_dev == tree->dev ? g_hash_table_lookup(tree->inodes, &inode) : NULL;
    if (!identity)
        return -EXDEV;
    *ret = identity->object;
    return 0;
}

struct wb_copied *wb_copy_tree_know(struct wb_copy_tree *tree, struct wb_object object, bool is_dir)
{
    struct wb_copied *copied = wb_copy_tree_find(tree, object), sought = {.object = object, .is_dir = is_dir};
    char path[WB_OBJECT_PATH_MAX];
    struct wb_object found;

    if (copied)
        return copied;
    wb_copy_grave(&sought, path);
    if (wb_copy_tree_identify(tree, tree->dir_fd, path, &found) < 0 || !wb_object_equal(found, object))
        return NULL;
    return get(tree, object, is_dir);
}

static void bind(struct wb_copy_tree *tree, struct wb_object inode, struct wb_object object)
{
    struct wb_identity *identity = g_new(struct wb_identity, 1);

    *identity = (struct wb_identity){inode, object};
    g_hash_table_replace(tree->inodes, identity, identity);
}

int wb_copy_tree_add(struct wb_copy_tree *tree, struct wb_object object, struct wb_copied **ret)
{
    char name[WB_OBJECT_TEXT_MAX];
    struct wb_object inode;
    struct stat st;
    int r;

    wb_object_print(object, name);
    r = wb_object_stat(NULL, tree->stage_fd, name, &inode, NULL, &st);
    if (r < 0)
        return r;
    bind(tree, inode, object);
    tree->grown = true;
    *ret = get(tree, object, S_ISDIR(st.st_mode));
    (*ret)->staged = true;
    (*ret)->fresh = true;
    return 0;
}

/* ---- identities ------------------------------------------------------------------------------------- */

static int read_identities(struct wb_copy_tree *tree)
{
    _cleanup_close_ int fd = wb_open_own(tree->dir_fd, WB_IDENTITIES_NAME, O_RDONLY, 0);
    uint8_t data[WB_IDENTITIES_HEAD], place[WB_IDENTITY_SIZE];
    struct wb_identities_head head;
    int r;

    if (fd < 0)
        return fd == -ENOENT ? 0 : fd;
    r = wb_pread_exact(fd, data, sizeof(data), 0);
    if (r == 0)
        r = wb_identities_decode_head(data, &head);
    for (uint64_t i = 0; r == 0 && i < UINT64_C(1) << head.bits; i++) {
        struct wb_identity identity;

        r = wb_pread_exact(fd, place, sizeof(place), WB_IDENTITIES_HEAD + i * WB_IDENTITY_SIZE);
        if (r == 0 && !wb_is_zero(place, sizeof(place))) {
            r = wb_identity_decode(place, &identity);
            if (r == 0)
                bind(tree, identity.inode, identity.object);
        }
    }
    return r;
}

int wb_copy_tree_bind(struct wb_copy_tree *tree)
{
    guint count = g_hash_table_size(tree->inodes), used = 0;
    g_autofree struct wb_identity *list = NULL;
    GHashTableIter iter;
    void *key;
    int r;

    if (!tree->grown)
        return 0;
    list = g_try_new(struct wb_identity, count);
    if (!list)
        return -ENOMEM;
    g_hash_table_iter_init(&iter, tree->inodes);
    while (g_hash_table_iter_next(&iter, &key, NULL))
        list[used++] = *(const struct wb_identity *)key;
    r = wb_identities_write(tree->dir_fd, list, used);
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
    struct wb_problem *why;
    GQueue queue; /* struct wb_object: directories */
};

static int visit(struct walk *walk, int fd, struct wb_object dir, const char *name)
{
    struct wb_object object;
    struct wb_copied *copied;
    struct stat st;
    int r = wb_copy_tree_identify(walk->tree, fd, name, &object);

    if (r == -EXDEV)
        return wb_problem_set(walk->why, r, "%s: this was not received: the copy was changed here; copy into another "
                              "directory, or take this away", name);
    if (r < 0 || fstatat(fd, name, &st, AT_SYMLINK_NOFOLLOW) < 0)
        return wb_problem_set(walk->why, r < 0 ? r : -errno, "%s: cannot be looked at: %s", name,
                              g_strerror(r < 0 ? -r : errno));
    copied = get(walk->tree, object, S_ISDIR(st.st_mode));
    if (wb_object_is_none(dir))
        copied->staged = true;
    else
        wb_copied_add_name(copied, dir, name);
    if (S_ISDIR(st.st_mode))
        g_queue_push_tail(&walk->queue, &copied->object);
    return 0;
}

static int walk_dir(struct walk *walk, int fd, struct wb_object dir)
{
    int copy = openat(fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC), r = 0;
    _cleanup_closedir_ DIR *stream = copy < 0 ? NULL : fdopendir(copy);
    struct dirent *entry;

    if (!stream)
        return wb_problem_set(walk->why, -errno, "a directory of the copy cannot be read: %s", g_strerror(errno));
    while (r == 0 && (entry = readdir(stream))) {
        struct wb_object object;

        if (strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0 ||
            is_hidden(walk->tree, dir, entry->d_name) ||
            /* The stream itself, and what is half made. */
            (wb_object_is_none(dir) && wb_object_parse(entry->d_name, &object) < 0))
            continue;
        r = visit(walk, fd, dir, entry->d_name);
    }
    return r;
}

int wb_copy_tree_open(struct wb_copy_tree *tree, struct wb_problem *why)
{
    struct walk walk = {.tree = tree, .why = why, .queue = G_QUEUE_INIT};
    struct wb_object inode;
    struct stat st;
    int r;

    tree->inodes = g_hash_table_new_full(object_hash, object_equal, g_free, NULL);
    tree->objects = g_hash_table_new_full(object_hash, object_equal, copied_free, NULL);
    r = read_identities(tree);
    if (r < 0)
        return wb_problem_set(why, r, "the file " WB_IDENTITIES_NAME " of the copy cannot be read: %s",
                              g_strerror(-r));
    r = wb_object_stat(NULL, tree->root_fd, NULL, &inode, NULL, &st);
    if (r < 0)
        return wb_problem_set(why, r, "%s", g_strerror(-r));
    tree->dev = st.st_dev;
    if (g_hash_table_size(tree->inodes) == 0)
        tree->grown = true;
    bind(tree, inode, tree->root);
    get(tree, tree->root, true);
    g_queue_push_tail(&walk.queue, &tree->root);
    r = walk_dir(&walk, tree->stage_fd, WB_OBJECT_NONE);
    while (!g_queue_is_empty(&walk.queue)) {
        const struct wb_object *dir = g_queue_pop_head(&walk.queue);
        _cleanup_close_ int fd = r == 0 ? wb_copy_tree_open_dir(tree, *dir) : -1;

        if (r == 0)
            r = fd < 0 ? wb_problem_set(why, fd, "a directory of the copy cannot be opened: %s", g_strerror(-fd))
                       : walk_dir(&walk, fd, *dir);
    }
    return r;
}

void wb_copy_tree_close(struct wb_copy_tree *tree)
{
    if (tree->inodes)
        g_hash_table_unref(tree->inodes);
    if (tree->objects)
        g_hash_table_unref(tree->objects);
}

/* ---- ways to it --------------------------------------------------------------------------------------- */

int wb_copy_tree_open_dir(const struct wb_copy_tree *tree, struct wb_object dir)
{
    g_autoptr(GPtrArray) names = g_ptr_array_new();
    char stage[WB_OBJECT_TEXT_MAX];
    int fd = tree->root_fd;

    while (!wb_object_equal(dir, tree->root)) {
        const struct wb_copied *copied = wb_copy_tree_find(tree, dir);

        if (!copied || !copied->is_dir || names->len > 4096)
            return -ENOENT;
        if (copied->staged) {
            wb_object_print(dir, stage);
            g_ptr_array_add(names, stage);
            fd = tree->stage_fd;
            break;
        }
        if (copied->names->len == 0)
            return -ENOENT;
        g_ptr_array_add(names, g_array_index(copied->names, struct wb_copy_name, 0).name);
        dir = g_array_index(copied->names, struct wb_copy_name, 0).dir;
    }
    fd = openat(fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    for (guint i = names->len; fd >= 0 && i-- > 0;) {
        int next = openat(fd, names->pdata[i], O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
        int error = errno;

        close(fd);
        fd = next;
        errno = error;
    }
    return fd < 0 ? -errno : fd;
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
    } else if (copied->names->len > 0) {
        const struct wb_copy_name *item = &g_array_index(copied->names, struct wb_copy_name, 0);

        *ret_fd = wb_copy_tree_open_dir(tree, item->dir);
        strcpy(ret_name, item->name);
        if (*ret_fd < 0)
            return *ret_fd;
    } else {
        *ret_fd = openat(tree->dir_fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        wb_copy_grave(copied, ret_name);
    }
    return *ret_fd < 0 ? -errno : 0;
}

int wb_copy_tree_unlock(int dir_fd, const char *name)
{
    struct stat st;
    mode_t lacks;

    if (geteuid() == 0)
        return 0;
    if (fstatat(dir_fd, name, &st, AT_SYMLINK_NOFOLLOW) < 0)
        return -errno;
    lacks = (S_ISDIR(st.st_mode) ? 0700 : S_ISREG(st.st_mode) ? 0600 : 0) & ~st.st_mode;
    return lacks && fchmodat(dir_fd, name, (st.st_mode & 07777) | lacks, 0) < 0 ? -errno : 0;
}
