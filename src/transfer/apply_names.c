/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Names. What has a name that it is not to have is parked in `receiving` first; then each name gets what it is to
 * have; what is left over goes to the graveyard. Each step looks at what is there, so that it may be gone through again
 * after a crash in any of them.
 */
#include "transfer/apply.h"

#include "base/cleanup.h"
#include "base/io.h"
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

struct naming {
    struct wb_applying *applying;
    struct wb_copy_tree *tree;
    struct wb_object dir;
    GHashTable *wanted;  /* name -> struct wb_object: of the directory at hand */
    GHashTable *buried;  /* struct wb_object: the store keeps them             */
    int (*whole)(struct naming *naming);
};

/* ---- listings, one at a time ------------------------------------------------------------------------ */

static int collect(struct naming *naming, const struct wb_stream_list *list)
{
    size_t position = 0;
    int r = 0;

    if (!wb_object_equal(naming->dir, list->object))
        g_hash_table_remove_all(naming->wanted);
    naming->dir = list->object;
    for (uint32_t i = 0; i < list->count; i++) {
        struct wb_stream_entry entry;
        struct wb_object *object = g_new(struct wb_object, 1);

        wb_stream_next_entry(list, &position, &entry);
        *object = entry.object;
        g_hash_table_replace(naming->wanted, g_strndup(entry.name, entry.length), object);
    }
    if (list->last) {
        r = naming->whole(naming);
        g_hash_table_remove_all(naming->wanted);
        naming->dir = WB_OBJECT_NONE;
    }
    return r;
}

static int each_listing(const struct wb_stream_body *body, void *data)
{
    struct naming *naming = data;

    if (body->type == WB_FRAME_OBJECT && body->object.flags & WB_STREAM_BURIED)
        g_hash_table_add(naming->buried, g_memdup2(&body->object.object, sizeof(struct wb_object)));
    return body->type == WB_FRAME_LISTING ? collect(naming, &body->list) : 0;
}

/* The directory at hand; -ENOENT: it is not in the tree, and nothing is to be in it. */
static int open_dir(struct naming *naming)
{
    int fd = wb_copy_tree_open_dir(naming->tree, naming->dir);

    if (fd == -ENOENT && g_hash_table_size(naming->wanted) > 0)
        return wb_problem_set(naming->applying->why, -EXDEV, "the stream tells of names in a directory that "
                              "the copy does not have");
    if (fd >= 0) {
        int r = wb_copy_tree_unlock(fd, ".");

        if (r < 0) {
            close(fd);
            return r;
        }
    }
    return fd;
}

/* ---- parking ------------------------------------------------------------------------------------------ */

static int park(struct naming *naming, int fd, const char *name, struct wb_object object)
{
    struct wb_copied *copied = wb_copy_tree_find(naming->tree, object);
    char stage[WB_OBJECT_TEXT_MAX];
    int r;

    if (!copied)
        return -EXDEV;
    wb_object_print(object, stage);
    r = copied->is_dir ? wb_copy_tree_unlock(fd, name) : 0;
    if (r < 0)
        return r;
    if ((copied->staged ? unlinkat(fd, name, 0) : renameat(fd, name, naming->tree->stage_fd, stage)) < 0)
        return -errno;
    wb_copied_remove_name(copied, naming->dir, name);
    copied->staged = true;
    return 0;
}

static int park_others(struct naming *naming)
{
    int fd = open_dir(naming), copy = fd < 0 ? -1 : openat(fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC), r = 0;
    bool is_root = wb_object_equal(naming->dir, naming->tree->root);
    g_autoptr(GPtrArray) names = g_ptr_array_new_with_free_func(g_free);
    _cleanup_closedir_ DIR *stream = copy < 0 ? NULL : fdopendir(copy);
    struct dirent *entry;

    if (fd < 0)
        return fd == -ENOENT ? 0 : fd;
    while (stream && (entry = readdir(stream)))
        if (strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0 &&
            !(is_root && (strcmp(entry->d_name, WB_STORE_NAME) == 0 || strcmp(entry->d_name, WB_STAGING_NAME) == 0)))
            g_ptr_array_add(names, g_strdup(entry->d_name));
    for (guint i = 0; r == 0 && i < names->len; i++) {
        const struct wb_object *wanted = g_hash_table_lookup(naming->wanted, names->pdata[i]);
        struct wb_object object;

        r = wb_copy_tree_identify(naming->tree, fd, names->pdata[i], &object);
        if (r == 0 && (!wanted || !wb_object_equal(*wanted, object)))
            r = park(naming, fd, names->pdata[i], object);
    }
    close(fd);
    return stream ? r : -EIO;
}

/* ---- placing ------------------------------------------------------------------------------------------ */

static int place(struct naming *naming, int fd, const char *name, struct wb_object object)
{
    struct wb_copied *copied = wb_copy_tree_know(naming->tree, object, false);
    char from[WB_OBJECT_PATH_MAX + WB_NAME_MAX];
    _cleanup_close_ int from_fd = -1;
    int r;

    if (!copied)
        copied = wb_copy_tree_know(naming->tree, object, true);
    if (!copied)
        return wb_problem_set(naming->applying->why, -EXDEV, "%s: the stream tells of a file that the copy "
                              "does not have",
                              name);
    if (copied->is_dir && !copied->staged && copied->names->len > 0)
        return wb_problem_set(naming->applying->why, -EXDEV, "%s: a directory of the copy is not where it was received",
                              name);
    r = wb_copy_tree_place(naming->tree, copied, &from_fd, from);
    if (r == 0 && copied->is_dir)
        r = wb_copy_tree_unlock(from_fd, from);
    if (r < 0)
        return r;
    if (copied->is_dir)
        r = renameat2(from_fd, from, fd, name, RENAME_NOREPLACE);
    else
        r = linkat(from_fd, from, fd, name, 0);
    if (r < 0)
        return -errno;
    if (copied->is_dir)
        copied->staged = false;
    wb_copied_add_name(copied, naming->dir, name);
    return 0;
}

static int place_wanted(struct naming *naming)
{
    _cleanup_close_ int fd = open_dir(naming);
    GHashTableIter iter;
    void *name, *object;
    int r = 0;

    if (fd < 0)
        return fd == -ENOENT ? 0 : fd;
    g_hash_table_iter_init(&iter, naming->wanted);
    while (r == 0 && g_hash_table_iter_next(&iter, &name, &object)) {
        struct stat st;

        /* What is there after parking is what is to be there. */
        if (fstatat(fd, name, &st, AT_SYMLINK_NOFOLLOW) < 0)
            r = errno == ENOENT ? place(naming, fd, name, *(struct wb_object *)object) : -errno;
    }
    return r;
}

/* ---- what is left --------------------------------------------------------------------------------------- */

static bool in_grave(struct naming *naming, const struct wb_copied *copied)
{
    char path[WB_OBJECT_PATH_MAX];
    struct stat st;

    wb_copy_grave(copied, path);
    return fstatat(naming->tree->dir_fd, path, &st, AT_SYMLINK_NOFOLLOW) == 0;
}

/* A file that lost a name and has others is linked there, as it is where it comes from. */
static int bury(struct naming *naming, struct wb_copied *copied)
{
    char from[WB_OBJECT_PATH_MAX + WB_NAME_MAX], grave[WB_OBJECT_PATH_MAX];
    _cleanup_close_ int from_fd = -1;
    int r = wb_copy_tree_place(naming->tree, copied, &from_fd, from);

    if (r < 0)
        return r;
    wb_copy_grave(copied, grave);
    if (!copied->is_dir)
        return linkat(from_fd, from, naming->tree->dir_fd, grave, 0) < 0 && errno != EEXIST ? -errno : 0;
    r = wb_copy_tree_unlock(from_fd, from);
    if (r < 0)
        return r;
    if (renameat2(from_fd, from, naming->tree->dir_fd, grave, RENAME_NOREPLACE) < 0)
        return -errno;
    copied->staged = false;
    return 0;
}

static int settle(struct naming *naming, struct wb_copied *copied)
{
    bool kept = g_hash_table_contains(naming->buried, &copied->object) || copied->names->len == 0;
    char stage[WB_OBJECT_TEXT_MAX];
    int r = 0;

    if (kept && !(copied->is_dir && copied->names->len > 0) && !wb_object_equal(copied->object, naming->tree->root) &&
        !in_grave(naming, copied))
        r = bury(naming, copied);
    if (r < 0 || !copied->staged)
        return r;
    wb_object_print(copied->object, stage);
    if (unlinkat(naming->tree->stage_fd, stage, copied->is_dir ? AT_REMOVEDIR : 0) < 0)
        return -errno;
    copied->staged = false;
    return 0;
}

static int settle_all(struct naming *naming)
{
    GHashTableIter iter;
    void *copied;
    int r = 0;

    g_hash_table_iter_init(&iter, naming->tree->objects);
    while (r == 0 && g_hash_table_iter_next(&iter, &copied, NULL))
        r = settle(naming, copied);
    return r;
}

static int pass(struct naming *naming, int (*whole)(struct naming *naming))
{
    naming->whole = whole;
    return wb_apply_each(naming->applying, each_listing, naming);
}

static guint hash(const void *key)
{
    return g_int64_hash(&((const struct wb_object *)key)->ino);
}

static gboolean equal(const void *a, const void *b)
{
    return wb_object_equal(*(const struct wb_object *)a, *(const struct wb_object *)b);
}

int wb_apply_names(struct wb_applying *applying)
{
    struct naming naming = {
        .applying = applying, .tree = &applying->tree,
        .wanted = g_hash_table_new_full(g_str_hash, g_str_equal, g_free, g_free),
        .buried = g_hash_table_new_full(hash, equal, g_free, NULL),
    };
    int r = pass(&naming, park_others);

    if (r == 0)
        r = pass(&naming, place_wanted);
    if (r == 0)
        r = settle_all(&naming);
    g_hash_table_unref(naming.wanted);
    g_hash_table_unref(naming.buried);
    return r;
}
