/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * A bundle goes with its last name. As long as others need one, those whose content is to be forgotten keep their
 * names of it until the others have another: so whatever a crash leaves, the same erasure finds it again.
 */
#include "maintain/bundle/bundle.h"

#include "format/object_key.h"
#include "wayback/error.h"
#include <errno.h>
#include <string.h>
#include <unistd.h>

GHashTable *wb_bundle_objects_new(void)
{
    return g_hash_table_new_full(wb_object_hash, wb_object_is_key, g_free, NULL);
}

/* What reads it in its turn, rows that were beside each other are so again. */
struct survivor {
    uint64_t place;
    struct wb_bundle_member member;
};

static gint compare(gconstpointer a, gconstpointer b)
{
    const struct survivor *x = a, *y = b;

    if (x->place != y->place)
        return x->place < y->place ? -1 : 1;
    if (x->member.chain != y->member.chain)
        return x->member.chain < y->member.chain ? -1 : 1;
    return x->member.lost > y->member.lost ? -1 : x->member.lost < y->member.lost;
}

int wb_bundle_needs(struct wb_store *store, struct wb_object object, ino_t ino)
{
    struct stat st;
    int r = wb_bundle_stat(store, object, WB_FILE_BUNDLE, &st);

    if (r != 0 || st.st_ino != ino)
        return MIN(r, 0);
    r = store->grave_fd < 0 ? 1 : wb_grave_has(store, object, false);
    return r == 0 ? wb_bundle_drop(store, object) : r;
}

/* Those that need this bundle. 0 or -errno. */
static int find_survivors(struct wb_store *store, const struct wb_bundle *bundle, ino_t ino, GHashTable *objects,
                          GArray *survivors)
{
    g_autoptr(GHashTable) places = g_hash_table_new(g_int64_hash, g_int64_equal);

    for (uint32_t i = 0; i < bundle->count; i++) {
        struct survivor one = {.member = bundle->members[i]};
        int r = g_hash_table_contains(objects, &one.member.object) ? 0 : wb_bundle_needs(store, one.member.object, ino);
        const struct wb_bundle_member *first;

        if (r < 0)
            return r;
        if (r == 0)
            continue;
        first = g_hash_table_lookup(places, &one.member.chain);
        if (!first)
            g_hash_table_insert(places, &bundle->members[i].chain, (void *)(uintptr_t)(first = &bundle->members[i]));
        one.place = first->count > 0 ? bundle->extents[first->first].at : 0;
        g_array_append_val(survivors, one);
    }
    g_array_sort(survivors, compare);
    return 0;
}

/* 0, -EBADMSG, or -errno. */
static int read_member(const struct wb_bundle *bundle, const struct wb_bundle_member *member, uint8_t *data)
{
    int r = 0;

    for (uint64_t offset = 0, step; r == 0 && offset < member->size; offset += step) {
        step = MIN(member->size - offset, (uint64_t)WB_PACK_CHUNK_MAX);
        r = wb_bundle_read(bundle, wb_bundle_find(bundle, member->object), data, step, offset);
    }
    return r;
}

/* Leaves unreadable files out of a damaged bundle with content to delete: they are lost. Each loses its name of the
 * bundle, and reads of it fail then. */
static int leave_out_damaged(struct wb_store *store, const struct wb_bundle *bundle, GArray *members)
{
    g_autofree uint8_t *data = g_try_malloc(WB_PACK_CHUNK_MAX);
    int r = data ? 0 : -ENOMEM;

    for (guint i = members->len; r == 0 && i-- > 0;) {
        struct wb_object object = g_array_index(members, struct wb_bundle_member, i).object;

        r = read_member(bundle, &g_array_index(members, struct wb_bundle_member, i), data);
        if (r != -EBADMSG)
            continue;
        g_array_remove_index(members, i);
        r = wb_bundle_drop(store, object);
    }
    return r;
}

/* Who need not go on. */
struct patience {
    const struct wb_store *store;
    bool (*stop)(void *data);
    void *data;
};

static bool is_wanted(void *data)
{
    struct patience *patience = data;

    return atomic_load(&patience->store->rewrite_wanted) > 0 || (patience->stop && patience->stop(patience->data));
}

/* Without `patience` the old one must not stay. With it, it does where it is damaged, with what can be read of it. */
static int make(struct wb_store *store, const struct wb_bundle *bundle, GArray *members, struct patience *patience)
{
    struct wb_bundle_job job = {
        .store = store, .members = members, .stop = patience ? is_wanted : NULL, .stop_data = patience};
    uint64_t size;
    int r = members->len > 0 ? wb_bundle_make(store, &job, 0, false, &size) : 0;

    if (r != -EBADMSG || patience)
        return r;
    r = leave_out_damaged(store, bundle, members);
    return r < 0 || members->len == 0 ? r : wb_bundle_make(store, &job, 0, false, &size);
}

/* `done`: bundles that have nothing in them that is not needed. */
static int rewrite(struct wb_store *store, const struct wb_bundle *bundle, ino_t ino, GHashTable *objects,
                   struct patience *patience, GHashTable *done)
{
    g_autoptr(GArray) survivors = g_array_new(FALSE, FALSE, sizeof(struct survivor));
    g_autoptr(GArray) members = g_array_new(FALSE, FALSE, sizeof(struct wb_bundle_member));
    struct stat st;
    guint64 made;
    int r = find_survivors(store, bundle, ino, objects, survivors);

    for (guint i = 0; i < survivors->len; i++)
        g_array_append_val(members, g_array_index(survivors, struct survivor, i).member);
    if (r == 0)
        r = survivors->len == bundle->count ? 0 : make(store, bundle, members, patience);
    if (r < 0 || members->len == 0)
        return r;
    r = wb_bundle_stat(store, g_array_index(members, struct wb_bundle_member, 0).object, WB_FILE_BUNDLE, &st);
    made = st.st_ino;
    if (r == 0)
        g_hash_table_add(done, g_memdup2(&made, sizeof(made)));
    return r < 0 ? r : 0;
}

/* Names by which files remember that it has content of theirs, which is not needed any more. */
static int remove_old_names(struct wb_store *store, const struct wb_bundle *bundle, ino_t ino, GHashTable *objects)
{
    char path[WB_OBJECT_PATH_MAX];
    struct stat st;

    for (uint32_t i = 0; i < bundle->count; i++) {
        struct wb_object object = bundle->members[i].object;
        int r = g_hash_table_contains(objects, &object) ? WB_ABSENT
                                                        : wb_bundle_stat(store, object, WB_FILE_BUNDLE_OLD, &st);

        if (r < 0)
            return r;
        wb_object_path(object, WB_FILE_BUNDLE_OLD, path);
        if (r == 0 && st.st_ino == ino && unlinkat(store->dir_fd, path, 0) < 0)
            return -errno;
    }
    return 0;
}

static int forget_one(struct wb_store *store, struct wb_object object, enum wb_object_file file, GHashTable *objects,
                      struct patience *patience, GHashTable *done);

/* Whether its bundle has content of the objects to delete: 1, 0, or -errno if that is not known. */
static int has_any(struct wb_store *store, struct wb_object object, GHashTable *objects)
{
    struct wb_bundle *bundle;
    bool has = false;
    int r;

    if (g_hash_table_size(objects) == 0)
        return 0;
    r = wb_bundle_open(store, object, WB_FILE_BUNDLE, &bundle);
    if (r != 0)
        return r == WB_ABSENT ? 0 : r;
    for (uint32_t i = 0; !has && i < bundle->count; i++)
        has = g_hash_table_contains(objects, &bundle->members[i].object);
    wb_bundle_free(bundle);
    return has;
}

/* A store that was copied without its hard links has a copy of the bundle for each that is in it. */
static int forget_copies(struct wb_store *store, const struct wb_bundle *bundle, GHashTable *objects,
                         struct patience *patience, GHashTable *done)
{
    struct stat st;
    int r = 0;

    for (uint32_t i = 0; r >= 0 && i < bundle->count; i++) {
        struct wb_object object = bundle->members[i].object;
        guint64 ino;

        r = g_hash_table_contains(objects, &object) ? WB_ABSENT : wb_bundle_stat(store, object, WB_FILE_BUNDLE, &st);
        ino = st.st_ino;
        if (r != 0 || g_hash_table_contains(done, &ino))
            continue;
        r = has_any(store, object, objects);
        if (r > 0)
            r = forget_one(store, object, WB_FILE_BUNDLE, objects, patience, done);
    }
    return r < 0 ? r : 0;
}

static int forget_one(struct wb_store *store, struct wb_object object, enum wb_object_file file, GHashTable *objects,
                      struct patience *patience, GHashTable *done)
{
    struct wb_bundle *bundle;
    struct stat st;
    guint64 ino;
    int r = wb_bundle_stat(store, object, file, &st);

    if (r != 0)
        return r == WB_ABSENT ? 0 : r;
    ino = st.st_ino;
    if (g_hash_table_contains(done, &ino))
        return 0;
    r = wb_bundle_open(store, object, file, &bundle);
    /* Whose content it has is not known any more. */
    if (r == -EBADMSG)
        return -EIO;
    if (r != 0)
        return r == WB_ABSENT ? 0 : r;
    r = rewrite(store, bundle, st.st_ino, objects, patience, done);
    if (r == 0)
        r = remove_old_names(store, bundle, st.st_ino, objects);
    g_hash_table_add(done, g_memdup2(&ino, sizeof(ino)));
    if (r == 0)
        r = forget_copies(store, bundle, objects, patience, done);
    wb_bundle_free(bundle);
    return r == -EBADMSG ? -EIO : r;
}

int wb_bundle_forget(struct wb_store *store, GHashTable *objects)
{
    g_autoptr(GHashTable) done = g_hash_table_new_full(g_int64_hash, g_int64_equal, g_free, NULL);
    GHashTableIter iter;
    void *key;
    int r = 0;

    wb_bundle_sweep(store);
    g_hash_table_iter_init(&iter, objects);
    while (r == 0 && g_hash_table_iter_next(&iter, &key, NULL)) {
        r = forget_one(store, *(struct wb_object *)key, WB_FILE_BUNDLE, objects, NULL, done);
        if (r == 0)
            r = forget_one(store, *(struct wb_object *)key, WB_FILE_BUNDLE_OLD, objects, NULL, done);
    }
    if (r == 0 && g_hash_table_size(done) > 0 && syncfs(store->dir_fd) < 0)
        r = -errno;
    return r;
}

int wb_bundle_refresh(struct wb_store *store, GHashTable *objects, bool (*stop)(void *data), void *data)
{
    struct patience patience = {store, stop, data};
    g_autoptr(GHashTable) done = g_hash_table_new_full(g_int64_hash, g_int64_equal, g_free, NULL);
    g_autoptr(GHashTable) none = wb_bundle_objects_new();
    GHashTableIter iter;
    void *key;
    int r = 0;

    wb_bundle_sweep(store);
    g_hash_table_iter_init(&iter, objects);
    while (r != -ECANCELED && g_hash_table_iter_next(&iter, &key, NULL)) {
        int one = is_wanted(&patience)
                      ? -ECANCELED
                      : forget_one(store, *(struct wb_object *)key, WB_FILE_BUNDLE, none, &patience, done);

        r = r == 0 || one == -ECANCELED ? one : r;
    }
    return r;
}

int wb_bundle_forget_old(struct wb_store *store, GHashTable *objects)
{
    char path[WB_OBJECT_PATH_MAX];
    GHashTableIter iter;
    void *key;
    int r = wb_bundle_forget(store, objects);

    g_hash_table_iter_init(&iter, objects);
    while (r == 0 && g_hash_table_iter_next(&iter, &key, NULL)) {
        wb_object_path(*(struct wb_object *)key, WB_FILE_BUNDLE_OLD, path);
        if (unlinkat(store->dir_fd, path, 0) < 0 && errno != ENOENT)
            r = -errno;
    }
    return r;
}

int wb_bundle_drop(struct wb_store *store, struct wb_object object)
{
    static const enum wb_object_file files[] = {WB_FILE_BUNDLE, WB_FILE_BUNDLE_OLD};
    char path[WB_OBJECT_PATH_MAX];

    for (size_t i = 0; i < G_N_ELEMENTS(files); i++) {
        wb_object_path(object, files[i], path);
        if (unlinkat(store->dir_fd, path, 0) < 0 && errno != ENOENT)
            return -errno;
    }
    return 0;
}
