/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "overlap.h"
#include "client/control.h"
#include "common/cli.h"
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>

static void overlap_free(void *data)
{
    struct overlap *overlap = data;

    g_free(overlap->path);
    g_free(overlap->op);
    g_free(overlap->command);
    g_free(overlap);
}

/* Whether a restore was in effect just before `when`. Each undo and redo of it turned that round. */
static bool was_in_effect(const GPtrArray *restores, const struct restore *base, int64_t when)
{
    bool in_effect = base->first < when;

    for (guint i = 0; i < restores->len; i++) {
        const struct restore *restore = restores->pdata[i];

        if (restore != base && restore->first < when && restore_base(restore) == base)
            in_effect = !in_effect;
    }
    return in_effect;
}

/* Whether the change is of the restore itself, of its undos and redos, or of others that leave things as they were. */
static bool has_no_effect(const GPtrArray *restores, const struct restore *restore, const struct wb_change *change)
{
    const struct restore *by = restore_of(restores, change), *base;

    if (!by)
        return false;
    base = restore_base(by);
    return base == restore_base(restore) ||
           was_in_effect(restores, base, restore->first) == was_in_effect(restores, base, WB_WHEN_PRESENT);
}

static bool is_at(const struct restore *restore, const char *given, bool names)
{
    bool unknown;
    g_autofree char *path = restore_path(given, &unknown);
    enum revert_extent extent = path ? wb_changed_extent(restore->paths, path) : REVERT_NOTHING;

    return extent == REVERT_ITSELF || (extent == REVERT_BELOW && (names || unknown));
}

static bool overlaps_path(const struct restore *restore, const struct wb_change *change)
{
    const struct wb_control_change *entry = change->entry;
    bool names = entry->existed_before != entry->exists_after || *change->other ||
                 entry->flags & WB_CONTROL_CHANGE_GAP;

    return is_at(restore, change->path, names) || (*change->other && is_at(restore, change->other, true));
}

static bool overlaps_object(const struct restore *restore, const struct wb_change *change)
{
    char object[RESTORE_OBJECT_MAX];

    return restore_object(change->entry->ino, change->entry->birth, object) &&
           g_hash_table_contains(restore->objects, object);
}

static struct overlap *overlap_new(const struct wb_change *change)
{
    struct overlap *overlap = g_new0(struct overlap, 1);

    overlap->path = g_strdup(strcmp(change->path, ".") == 0 ? "" : change->path);
    overlap->op = g_strdup(change->op);
    overlap->command = g_strdup(change->command);
    overlap->when = change->entry->when;
    overlap->uid = change->uid;
    overlap->pid = change->pid;
    overlap->gap = change->entry->flags & WB_CONTROL_CHANGE_GAP;
    return overlap;
}

static void cover(struct wb_changed *covered, const struct wb_change *change)
{
    if (!covered)
        return;
    wb_changed_add(covered, change->path, true);
    if (*change->other)
        wb_changed_add(covered, change->other, true);
}

/* ---- files with several names ----------------------------------------------------------------------- */

struct linked {
    const struct wb_mount *mount;
    GHashTable *changes; /* object -> struct overlap: changes of files with several names, by some other path */
    GPtrArray *found;
};

static bool add_linked(void *data, const char *path)
{
    struct linked *linked = data;
    struct wb_control_identity identity;
    char object[RESTORE_OBJECT_MAX];
    struct overlap *overlap;
    struct stat st;
    void *key;

    if (fstatat(linked->mount->root_fd, *path ? path : ".", &st, AT_SYMLINK_NOFOLLOW) < 0 || st.st_nlink < 2 ||
        S_ISDIR(st.st_mode) || wb_request_identify(linked->mount->root_fd, path, &identity) < 0)
        return wb_cli_interrupted();
    restore_object(identity.ino, identity.birth, object);
    overlap = g_hash_table_lookup(linked->changes, object);
    if (overlap) {
        g_hash_table_steal_extended(linked->changes, object, &key, NULL);
        g_free(key);
        g_free(overlap->path);
        overlap->path = g_strdup(path);
        overlap->by_object = true;
        g_ptr_array_add(linked->found, overlap);
    }
    return wb_cli_interrupted();
}

static void note_linked(struct linked *linked, const struct wb_change *change)
{
    char object[RESTORE_OBJECT_MAX];

    if (change->entry->flags & WB_CONTROL_CHANGE_LINKED &&
        restore_object(change->entry->ino, change->entry->birth, object) &&
        !g_hash_table_contains(linked->changes, object))
        g_hash_table_insert(linked->changes, g_strdup(object), overlap_new(change));
}

GPtrArray *overlaps_find(const struct wb_mount *mount, const GPtrArray *restores, const struct restore *restore,
                         struct wb_changed *covered, int *error)
{
    g_autoptr(GPtrArray) found = g_ptr_array_new_with_free_func(overlap_free);
    g_autoptr(GHashTable) paths = g_hash_table_new_full(g_str_hash, g_str_equal, g_free, NULL);
    g_autoptr(GHashTable) changes = g_hash_table_new_full(g_str_hash, g_str_equal, g_free, overlap_free);
    struct linked linked = {.mount = mount, .changes = changes, .found = found};
    struct wb_change_walk_options options = {.since = restore->first + 1};
    _cleanup_change_walk_ struct wb_change_walk *walk = wb_change_walk_new(mount, "", &options);
    struct wb_change change;
    uint64_t held = 0;
    int r;

    while ((r = wb_change_walk_next(walk, &change)) == 0 && held <= WB_HELD_MAX) {
        bool by_path;

        if (has_no_effect(restores, restore, &change))
            continue;
        by_path = overlaps_path(restore, &change);
        if (!by_path && !overlaps_object(restore, &change)) {
            note_linked(&linked, &change);
            continue;
        }
        cover(covered, &change);
        if (g_hash_table_add(paths, g_strdup(change.path))) {
            struct overlap *overlap = overlap_new(&change);

            overlap->by_object = !by_path;
            g_ptr_array_add(found, overlap);
            held += change.entry->size + strlen(change.command);
        }
    }
    if (r > 0 && g_hash_table_size(changes) > 0)
        wb_changed_each(restore->paths, add_linked, &linked);
    *error = wb_cli_interrupted() ? -EINTR : r == 0 ? -EOVERFLOW : MIN(r, 0);
    return *error < 0 ? NULL : g_steal_pointer(&found);
}
