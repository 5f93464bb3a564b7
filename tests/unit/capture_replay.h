/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

/*
 * States as text: the present as it is seen, and any past as the logs have it. A second, slow and simple reading of the
 * records, which shares nothing with src/history: it proves that the records suffice.
 */

#include "base/checksum.h"
#include "capture_tree.h"
#include <sys/xattr.h>

struct replay {
    struct tree *tree;
    GPtrArray *records;
    GHashTable *present; /* object as text -> path below tree->fd */
    int64_t when;
    GString *text;
};

static inline char *object_text(struct wb_object object)
{
    char text[WB_OBJECT_TEXT_MAX];

    wb_object_print(object, text);
    return g_strdup(text);
}

/* ---- the present ----------------------------------------------------------------------------- */

static inline void add_present(struct replay *replay, const char *path, bool graves)
{
    g_autofree char *full = g_strdup_printf("%s/%s", replay->tree->path, path);
    g_autoptr(GDir) dir = g_dir_open(full, 0, NULL);
    const char *name;
    struct stat st;

    while (dir && (name = g_dir_read_name(dir))) {
        g_autofree char *child = *path ? g_strdup_printf("%s/%s", path, name) : g_strdup(name);

        if (strcmp(child, WB_STORE_NAME) == 0)
            continue;
        if (graves && !g_str_has_suffix(name, ".data") && !g_str_has_suffix(name, ".dir") && strlen(name) != 2)
            continue;
        ck_assert_int_eq(fstatat(replay->tree->fd, child, &st, AT_SYMLINK_NOFOLLOW), 0);
        if (!graves || strlen(name) != 2)
            g_hash_table_replace(replay->present, object_text(tree_object(replay->tree, child)), g_strdup(child));
        if (S_ISDIR(st.st_mode))
            add_present(replay, child, graves);
    }
}

/* The present follows from the tree alone; one in so many checks that all logs can be read. */
#define PRESENTS 8

static inline void replay_init(struct replay *replay, struct tree *tree, int64_t when)
{
    static unsigned presents;
    bool past = when != WB_WHEN_PRESENT;

    memset(replay, 0, sizeof(*replay));
    replay->tree = tree;
    replay->when = when;
    replay->records = past || presents++ % PRESENTS == 0 ? tree_records(tree) : g_ptr_array_new();
    replay->present = g_hash_table_new_full(g_str_hash, g_str_equal, g_free, g_free);
    replay->text = g_string_new("");
    if (past)
        add_present(replay, WB_STORE_NAME "/" WB_OBJECTS_NAME, true);
    add_present(replay, "", false);
    g_hash_table_replace(replay->present, object_text(tree_object(tree, ".")), g_strdup("."));
}

static inline void replay_deinit(struct replay *replay)
{
    g_ptr_array_unref(replay->records);
    g_hash_table_unref(replay->present);
    g_string_free(replay->text, TRUE);
}

static inline const char *present_path(struct replay *replay, struct wb_object object)
{
    g_autofree char *text = object_text(object);
    const char *path = g_hash_table_lookup(replay->present, text);

    ck_assert_msg(path != NULL, "object %s is nowhere", text);
    return path;
}

/* ---- one object at replay->when -------------------------------------------------------------- */

static inline bool in_log(const struct kept *kept, struct wb_object object, enum wb_object_file file)
{
    return kept->file == file && wb_object_equal(kept->log, object);
}

/* The attributes before `kept`, if it is about `object` as reached through `dir`. */
static inline const struct wb_attrs *attrs_in(const struct kept *kept, struct wb_object dir, struct wb_object object)
{
    const struct wb_record *record = &kept->record;
    bool own = in_log(kept, object, WB_FILE_UNDO) || in_log(kept, object, WB_FILE_CATALOG);

    if (!own && !in_log(kept, dir, WB_FILE_CATALOG))
        return NULL;
    switch (record->type) {
    case WB_REC_ATTR:
        return wb_object_equal(record->attr.object, object) ? &record->attr.attrs : NULL;
    case WB_REC_XATTR:
        return wb_object_equal(record->xattr.object, object) ? &record->xattr.attrs : NULL;
    case WB_REC_DATA:
        return own ? &record->data.attrs : NULL;
    case WB_REC_NAME:
        if (own)
            return &record->name.dir;
        for (uint32_t i = 0; i < record->name.count; i++)
            if (record->name.slots[i].present && wb_object_equal(record->name.slots[i].object, object))
                return &record->name.slots[i].attrs;
        return NULL;
    default:
        return NULL;
    }
}

static inline struct wb_attrs replay_attrs(struct replay *replay, struct wb_object dir, struct wb_object object)
{
    struct wb_attrs attrs;

    for (guint i = 0; i < replay->records->len; i++) {
        const struct kept *kept = replay->records->pdata[i];
        const struct wb_attrs *found;

        if (kept->record.when > replay->when && !kept->aborted && (found = attrs_in(kept, dir, object)))
            return *found;
    }
    ck_assert_int_eq(wb_capture_stat(replay->tree->store, replay->tree->fd, present_path(replay, object), NULL, &attrs), 0);
    return attrs;
}

static inline void resize(GByteArray *bytes, uint64_t size)
{
    guint old = bytes->len;

    g_byte_array_set_size(bytes, (guint)size);
    if (size > old)
        memset(bytes->data + old, 0, size - old);
}

static inline void put_back(struct replay *replay, const struct kept *kept, GByteArray *bytes)
{
    const struct wb_rec_data *data = &kept->record.data;

    resize(bytes, data->attrs.size);
    for (uint32_t i = 0; i < data->count; i++) {
        const struct wb_extent *extent = &data->extents[i];

        ck_assert_uint_le(extent->offset + extent->length, bytes->len);
        if (extent->kind == WB_EXTENT_ZERO) {
            memset(bytes->data + extent->offset, 0, extent->length);
        } else if (extent->kind == WB_EXTENT_INLINE) {
            memcpy(bytes->data + extent->offset, kept->payload + extent->source, extent->length);
        } else {
            int fd = wb_store_open_file(replay->tree->store, kept->log, WB_FILE_IMAGE, O_RDONLY);

            ck_assert_int_eq(wb_pread_exact(fd, bytes->data + extent->offset, extent->length, extent->source), 0);
            close(fd);
        }
    }
}

static inline GByteArray *replay_content(struct replay *replay, struct wb_object object, uint64_t size)
{
    GByteArray *bytes = g_byte_array_new();
    int fd = openat(replay->tree->fd, present_path(replay, object), O_RDONLY);
    struct stat st;

    ck_assert_int_eq(fstat(fd, &st), 0);
    resize(bytes, st.st_size);
    ck_assert_int_eq(wb_pread_exact(fd, bytes->data, bytes->len, 0), 0);
    close(fd);
    for (guint i = replay->records->len; i-- > 0;) {
        const struct kept *kept = replay->records->pdata[i];

        if (kept->record.when > replay->when && !kept->aborted && kept->record.type == WB_REC_DATA &&
            wb_object_equal(kept->log, object))
            put_back(replay, kept, bytes);
    }
    resize(bytes, size);
    return bytes;
}

static inline void print_xattrs(struct replay *replay, struct wb_object object)
{
    g_autoptr(GTree) values = g_tree_new_full((GCompareDataFunc)(void (*)(void))strcmp, NULL, g_free, g_free);
    g_autofree char *path = g_strdup_printf("%s/%s", replay->tree->path, present_path(replay, object));
    char list[4096], value[4096];
    ssize_t n = llistxattr(path, list, sizeof(list));

    for (ssize_t i = 0; i < n; i += strlen(list + i) + 1) {
        ssize_t length = lgetxattr(path, list + i, value, sizeof(value));

        ck_assert_int_ge(length, 0);
        g_tree_replace(values, g_strdup(list + i), g_strndup(value, length));
    }
    for (guint i = replay->records->len; i-- > 0;) {
        const struct kept *kept = replay->records->pdata[i];
        const struct wb_record *record = &kept->record;

        if (record->when <= replay->when || kept->aborted || record->type != WB_REC_XATTR ||
            !wb_object_equal(kept->log, object))
            continue;
        g_tree_remove(values, record->xattr.name);
        if (record->xattr.present)
            g_tree_replace(values, g_strdup(record->xattr.name),
                           g_strndup((char *)kept->payload, record->payload_length));
    }
    for (GTreeNode *node = g_tree_node_first(values); node; node = g_tree_node_next(node))
        g_string_append_printf(replay->text, " %s=%s", (char *)g_tree_node_key(node), (char *)g_tree_node_value(node));
}

/* ---- the tree at replay->when ---------------------------------------------------------------- */

static inline void print_object(struct replay *replay, const char *path, struct wb_object dir, struct wb_object object);

static inline void print_names(struct replay *replay, const char *path, struct wb_object dir)
{
    g_autoptr(GTree) names = g_tree_new_full((GCompareDataFunc)(void (*)(void))strcmp, NULL, g_free, g_free);
    g_autofree char *full = g_strdup_printf("%s/%s", replay->tree->path, present_path(replay, dir));
    g_autoptr(GDir) stream = g_dir_open(full, 0, NULL);
    const char *name;

    while ((name = g_dir_read_name(stream))) {
        g_autofree char *child = g_strdup_printf("%s/%s", present_path(replay, dir), name);
        struct wb_object object = tree_object(replay->tree, child);

        if (strcmp(name, WB_STORE_NAME))
            g_tree_replace(names, g_strdup(name), g_memdup2(&object, sizeof(object)));
    }
    for (guint i = replay->records->len; i-- > 0;) {
        const struct kept *kept = replay->records->pdata[i];

        if (kept->record.when <= replay->when || kept->aborted || kept->record.type != WB_REC_NAME ||
            !in_log(kept, dir, WB_FILE_CATALOG))
            continue;
        for (uint32_t k = 0; k < kept->record.name.count; k++) {
            const struct wb_slot *slot = &kept->record.name.slots[k];

            g_tree_remove(names, slot->name);
            if (slot->present)
                g_tree_replace(names, g_strdup(slot->name), g_memdup2(&slot->object, sizeof(slot->object)));
        }
    }
    for (GTreeNode *node = g_tree_node_first(names); node; node = g_tree_node_next(node)) {
        g_autofree char *child = g_strdup_printf("%s/%s", path, (char *)g_tree_node_key(node));

        print_object(replay, child, dir, *(struct wb_object *)g_tree_node_value(node));
    }
}

static inline void print_object(struct replay *replay, const char *path, struct wb_object dir, struct wb_object object)
{
    struct wb_attrs attrs = replay_attrs(replay, dir, object);
    bool is_dir = S_ISDIR(attrs.mode);

    g_string_append_printf(replay->text, "%s ino=%lu mode=%o uid=%u gid=%u nlink=%u size=%lu mtime=%ld ctime=%ld",
                           path, object.ino, attrs.mode, attrs.uid, attrs.gid, attrs.nlink,
                           is_dir ? 0 : attrs.size, attrs.mtime, attrs.ctime);
    if (S_ISREG(attrs.mode)) {
        g_autoptr(GByteArray) bytes = replay_content(replay, object, attrs.size);

        g_string_append_printf(replay->text, " data=%016lx", wb_checksum(bytes->data, bytes->len));
    } else if (S_ISLNK(attrs.mode)) {
        char target[256] = "";

        ck_assert_int_ge(readlinkat(replay->tree->fd, present_path(replay, object), target, sizeof(target) - 1), 0);
        g_string_append_printf(replay->text, " -> %s", target);
    }
    print_xattrs(replay, object);
    g_string_append_c(replay->text, '\n');
    if (is_dir)
        print_names(replay, path, object);
}

/* The same tree and logs, at another moment of the past. */
static inline char *replay_at(struct replay *replay, int64_t when)
{
    replay->when = when;
    g_string_truncate(replay->text, 0);
    print_object(replay, "", WB_OBJECT_NONE, tree_object(replay->tree, "."));
    return g_strdup(replay->text->str);
}

/* The tree at `when`, one line per object; WB_WHEN_PRESENT: as it is seen. */
static inline char *replay_tree(struct tree *tree, int64_t when)
{
    struct replay replay;
    char *text;

    replay_init(&replay, tree, when);
    text = replay_at(&replay, when);
    replay_deinit(&replay);
    return text;
}
