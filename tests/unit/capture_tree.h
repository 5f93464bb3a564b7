/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

/*
 * A tree with a store in a temporary directory, and everything in its logs, read without the floor that replays them:
 * these tests compute their expectations by themselves.
 */

#include "amount.h"
#include "base/io.h"
#include "capture/capture.h"
#include "capture/plan.h"
#include "wayback/when.h"
#include <check.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <glib.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

struct tree {
    char path[256];
    int fd;
    struct wb_store *store;
    GPtrArray *dirs;    /* struct wb_dir handed out */
    GPtrArray *strings; /* their names */
};

/* One effective or aborted record with its strings and payload kept. */
struct kept {
    struct wb_object log;
    enum wb_object_file file;
    struct wb_record record;
    uint8_t *payload;
    bool aborted;
};

/* How often undo logs get an INDEX; 0: as always. */
static uint64_t tree_index_stride;

static inline void tree_open_store(struct tree *tree)
{
    struct wb_error why = {""};
    int r = wb_store_open(&tree->store, tree->fd, NULL, WB_STORE_WRITE | WB_STORE_CREATE, &why);

    ck_assert_msg(r == 0, "store: %d %s", r, why.text);
    if (tree_index_stride)
        tree->store->index_stride = tree_index_stride;
}

static inline void tree_open(struct tree *tree)
{
    const char *base = g_getenv("WAYBACK_TEST_DIR");

    memset(tree, 0, sizeof(*tree));
    g_snprintf(tree->path, sizeof(tree->path), "%s/wayback-capture-XXXXXX", base ? base : "/var/tmp");
    ck_assert_ptr_nonnull(mkdtemp(tree->path));
    tree->fd = open(tree->path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    ck_assert_int_ge(tree->fd, 0);
    tree->dirs = g_ptr_array_new_with_free_func(g_free);
    tree->strings = g_ptr_array_new_with_free_func(g_free);
    tree_open_store(tree);
}

/* Forgets the directories handed out. */
static inline void tree_release(struct tree *tree)
{
    for (guint i = 0; i < tree->dirs->len; i++)
        close(((struct wb_dir *)tree->dirs->pdata[i])->fd);
    g_ptr_array_set_size(tree->dirs, 0);
    g_ptr_array_set_size(tree->strings, 0);
}

static inline void tree_close(struct tree *tree)
{
    g_autofree char *command = g_strdup_printf("chmod -R u+rwx %s; rm -rf %s", tree->path, tree->path);

    tree_release(tree);
    wb_store_free(tree->store);
    close(tree->fd);
    g_ptr_array_unref(tree->dirs);
    g_ptr_array_unref(tree->strings);
    ck_assert_int_eq(system(command), 0);
}

static inline struct wb_object tree_object(struct tree *tree, const char *path)
{
    struct wb_object object;

    ck_assert_int_eq(wb_object_stat(NULL, tree->fd, path, &object, NULL, NULL), 0);
    return object;
}

/* The directory `path` ("" for the root) with the chain above it. */
static inline struct wb_dir *tree_dir(struct tree *tree, const char *path)
{
    struct wb_dir *dir = g_new0(struct wb_dir, 1);
    const char *slash = strrchr(path, '/');
    g_autofree char *above = slash ? g_strndup(path, slash - path) : g_strdup("");

    g_ptr_array_add(tree->dirs, dir);
    dir->fd = openat(tree->fd, *path ? path : ".", O_PATH | O_DIRECTORY | O_CLOEXEC);
    ck_assert_msg(dir->fd >= 0, "no directory %s", path);
    ck_assert_int_eq(wb_object_stat(NULL, dir->fd, NULL, &dir->object, NULL, NULL), 0);
    if (*path) {
        char *name = g_strdup(slash ? slash + 1 : path);

        g_ptr_array_add(tree->strings, name);
        dir->name = name;
        dir->parent = tree_dir(tree, above);
    }
    return dir;
}

/* The directory that holds `path`, and its last name. */
static inline struct wb_dir *tree_parent(struct tree *tree, const char *path, const char **name)
{
    const char *slash = strrchr(path, '/');
    g_autofree char *above = slash ? g_strndup(path, slash - path) : g_strdup("");

    *name = slash ? slash + 1 : path;
    return tree_dir(tree, above);
}

/* A descriptor and the target of the file at `path`. */
static inline int tree_target(struct tree *tree, const char *path, int flags, struct wb_target *target)
{
    const char *name;
    struct wb_attrs attrs;
    int fd;

    memset(target, 0, sizeof(*target));
    if (!*path) {
        target->self = tree_dir(tree, "");
        target->object = target->self->object;
        return openat(tree->fd, ".", O_PATH | O_CLOEXEC);
    }
    target->parent = tree_parent(tree, path, &name);
    ck_assert_int_eq(wb_capture_stat(tree->store, target->parent->fd, name, &target->object, &attrs), 0);
    target->nlink = attrs.nlink;
    target->name = name;
    if (S_ISDIR(attrs.mode))
        target->self = tree_dir(tree, path);
    fd = openat(target->parent->fd, name, flags | O_NOFOLLOW | O_CLOEXEC);
    ck_assert_msg(fd >= 0, "%s: %s", path, strerror(errno));
    return fd;
}

/* ---- contents of the logs -------------------------------------------------------------------- */

static inline void kept_free(void *data)
{
    struct kept *kept = data;
    struct wb_record *record = &kept->record;

    if (record->type == WB_REC_NAME) {
        for (uint32_t i = 0; i < record->name.count; i++) {
            g_free((char *)record->name.slots[i].name);
            g_free((char *)record->name.slots[i].to_name);
            g_free((char *)record->name.slots[i].from_name);
        }
    } else if (record->type == WB_REC_XATTR) {
        g_free((char *)record->xattr.name);
    } else if (record->type == WB_REC_PLACE) {
        g_free((char *)record->place.name);
    }
    g_free(kept->payload);
    g_free(kept);
}

static inline const char *keep_string(const char *string, size_t length)
{
    return string ? g_strndup(string, length) : g_strdup("");
}

static inline struct kept *keep(const struct wb_record *from, int fd)
{
    struct kept *kept = g_new0(struct kept, 1);
    struct wb_record *record = &kept->record;

    *record = *from;
    if (record->type == WB_REC_NAME) {
        for (uint32_t i = 0; i < record->name.count; i++) {
            struct wb_slot *slot = &record->name.slots[i];

            slot->name = keep_string(slot->name, slot->name_length);
            slot->to_name = keep_string(slot->to_name, slot->to_length);
            slot->from_name = keep_string(slot->from_name, slot->from_length);
        }
    } else if (record->type == WB_REC_XATTR) {
        record->xattr.name = keep_string(record->xattr.name, record->xattr.name_length);
    } else if (record->type == WB_REC_PLACE) {
        record->place.name = keep_string(record->place.name, record->place.name_length);
    }
    kept->payload = g_malloc(record->payload_length + 1);
    ck_assert_int_eq(wb_log_read_payload(fd, record, kept->payload), 0);
    return kept;
}

static inline void read_log(GPtrArray *all, int dir_fd, const char *name)
{
    struct wb_log_reader reader;
    struct wb_record record;
    struct wb_object object;
    enum wb_object_file file;
    guint first = all->len;
    int64_t last = 0;
    int r, fd;

    ck_assert_int_eq(wb_object_file_parse(name, &object, &file), 0);
    if (file != WB_FILE_UNDO && file != WB_FILE_CATALOG)
        return;
    fd = openat(dir_fd, name, O_RDONLY | O_CLOEXEC);
    ck_assert_int_eq(wb_log_reader_init(&reader, fd), 0);
    wb_log_reader_seek(&reader, 0);
    while ((r = wb_log_reader_next(&reader, &record)) == 0) {
        struct kept *kept = keep(&record, fd);

        ck_assert_int_ge(record.when, last);
        last = record.when;
        kept->log = object;
        kept->file = file;
        if (record.type == WB_REC_ABORT) {
            for (guint i = first; i < all->len; i++) {
                struct kept *target = all->pdata[i];

                target->aborted |= target->record.when == record.abort.target;
            }
        }
        g_ptr_array_add(all, kept);
    }
    ck_assert_int_eq(r, WB_END);
    wb_log_reader_deinit(&reader);
    close(fd);
}

static inline gint compare_kept(gconstpointer a, gconstpointer b)
{
    const struct kept *x = *(struct kept *const *)a, *y = *(struct kept *const *)b;

    return x->record.when < y->record.when ? -1 : x->record.when > y->record.when;
}

/* Every record of every log of an object, in the order of `when`. */
static inline GPtrArray *tree_records(struct tree *tree)
{
    GPtrArray *all = g_ptr_array_new_with_free_func(kept_free);
    g_autofree char *path = g_strdup_printf("%s/" WB_STORE_NAME "/" WB_OBJECTS_NAME, tree->path);
    g_autoptr(GDir) top = g_dir_open(path, 0, NULL);
    const char *sub, *name;

    ck_assert_ptr_nonnull(top);
    while ((sub = g_dir_read_name(top))) {
        g_autofree char *sub_path = g_strdup_printf("%s/%s", path, sub);
        g_autoptr(GDir) dir = g_dir_open(sub_path, 0, NULL);
        int fd = open(sub_path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);

        while (dir && (name = g_dir_read_name(dir)))
            read_log(all, fd, name);
        close(fd);
    }
    g_ptr_array_sort(all, compare_kept); /* stable: the order inside a log is kept */
    return all;
}

/* The newest change in the logs: its records; for tests of one operation. */
static inline GPtrArray *tree_last_change(struct tree *tree)
{
    GPtrArray *all = tree_records(tree);
    int64_t last = all->len ? ((struct kept *)all->pdata[all->len - 1])->record.when : 0;

    while (all->len && ((struct kept *)all->pdata[0])->record.when != last)
        g_ptr_array_remove_index(all, 0);
    return all;
}

static inline const struct kept *kept_find(const GPtrArray *all, enum wb_record_type type,
                                           struct wb_object log, enum wb_object_file file)
{
    for (guint i = 0; i < all->len; i++) {
        const struct kept *kept = all->pdata[i];

        if (kept->record.type == type && kept->file == file && wb_object_equal(kept->log, log))
            return kept;
    }
    return NULL;
}
