/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "client/revert/revert_parts.h"

#include "base/cleanup.h"
#include "base/dir.h"
#include "client/copy/copy.h"
#include "client/fd.h"
#include "client/path.h"
#include "client/watch.h"
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>

/*
 * Finds files with names outside of the PATHs that are reverted. Such a file is never changed: its names below the
 * PATHs get a new file with the old content. The number of names outside is the link count minus the names inside. No
 * step of a revert changes it, so it may be determined at any time.
 */

void revert_aside_prefix(const char *path, char prefix[REVERT_ASIDE_MAX])
{
    snprintf(prefix, REVERT_ASIDE_MAX, ".vrevert-%08x-", g_str_hash(path));
}

/* Counts the names of files: of all, or of those with several links. `is_top`: the root of the mount itself. */
static void count_names(struct revert_set *set, int dir, const char *name, bool is_top)
{
    g_autoptr(GPtrArray) names = NULL;
    _cleanup_fd_ int fd = -1;
    struct stat st;

    if (wb_watch_stopped() || fstatat(dir, name, &st, AT_SYMLINK_NOFOLLOW) < 0 || st.st_dev != set->dev)
        return;
    if (!S_ISDIR(st.st_mode)) {
        int64_t *left = g_hash_table_lookup(set->outside, &st.st_ino);

        if (left) {
            (*left)--;
        } else if (st.st_nlink > 1 || set->complete) {
            int64_t *key = g_new(int64_t, 2);

            key[0] = (int64_t)st.st_ino;
            key[1] = (int64_t)st.st_nlink - 1;
            g_hash_table_insert(set->outside, key, key + 1);
        }
        return;
    }
    fd = openat(dir, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    names = fd < 0 || (!is_top && wb_fd_is_mount(fd, "")) ? NULL : wb_fd_names(fd);
    for (guint i = 0; names && i < names->len; i++)
        count_names(set, fd, names->pdata[i], false);
}

/* Counts names of objects that this run, or an interrupted one, put aside next to PATH: they count as inside. */
static void count_aside(struct revert_set *set, int dir, const char *prefix)
{
    g_autoptr(GPtrArray) names = wb_fd_names(dir);

    for (guint i = 0; names && i < names->len; i++) {
        if (g_str_has_prefix(names->pdata[i], prefix))
            count_names(set, dir, names->pdata[i], false);
    }
}

static void count_all(struct revert_set *set, int root_fd, bool complete)
{
    struct stat st;

    if (set->outside)
        g_hash_table_unref(set->outside);
    set->complete = complete;
    set->dev = fstat(root_fd, &st) == 0 ? st.st_dev : 0;
    set->outside = g_hash_table_new_full(g_int64_hash, g_int64_equal, g_free, NULL);
    for (guint i = 0; i < set->paths->len; i++) {
        const char *path = set->paths->pdata[i], *name;
        _cleanup_fd_ int dir = wb_fd_open_parent(root_fd, path, &name);
        char prefix[REVERT_ASIDE_MAX];

        if (dir < 0)
            continue;
        count_names(set, dir, name, !*path);
        revert_aside_prefix(path, prefix);
        if (*path)
            count_aside(set, dir, prefix);
    }
}

bool revert_has_other_names(struct revert *revert, const struct stat *st)
{
    struct revert_set *set = revert->set;
    const int64_t *left;

    if (S_ISDIR(st->st_mode) || st->st_nlink < 2)
        return false;
    if (!set->outside)
        count_all(set, revert->mount->root_fd, false);
    left = g_hash_table_lookup(set->outside, &st->st_ino);
    /* A file that was not found inside came here by a link from outside. */
    return !left || *left > 0;
}

bool revert_lives_outside(struct revert *revert, uint64_t inode)
{
    struct revert_set *set = revert->set;
    const int64_t *left;

    if (!set->complete)
        count_all(set, revert->mount->root_fd, true);
    left = g_hash_table_lookup(set->outside, &inode);
    return !left || *left > 0;
}

bool revert_set_has(const struct revert_set *set, const char *path)
{
    for (guint i = 0; i < set->paths->len; i++) {
        if (wb_path_below(path, set->paths->pdata[i], NULL))
            return true;
    }
    return false;
}

void wb_revert_set_add(struct revert_set *set, const char *path)
{
    if (revert_set_has(set, path))
        return;
    /* PATHs below this one are counted with it. */
    for (guint i = set->paths->len; i-- > 0;) {
        if (wb_path_below(set->paths->pdata[i], path, NULL))
            g_ptr_array_remove_index(set->paths, i);
    }
    g_ptr_array_add(set->paths, g_strdup(path));
}

struct revert_set *wb_revert_set_new(void)
{
    struct revert_set *set = g_new0(struct revert_set, 1);

    set->paths = g_ptr_array_new_with_free_func(g_free);
    set->placed = g_hash_table_new_full(g_str_hash, g_str_equal, g_free, g_free);
    set->inodes = g_hash_table_new_full(g_str_hash, g_str_equal, g_free, g_free);
    return set;
}

void wb_revert_set_free(void *data)
{
    struct revert_set *set = data;

    g_ptr_array_unref(set->paths);
    g_hash_table_unref(set->placed);
    g_hash_table_unref(set->inodes);
    if (set->outside)
        g_hash_table_unref(set->outside);
    g_free(set);
}

char *revert_other_name(const struct revert *revert, const struct revision *revision)
{
    g_autofree char *parent = wb_path_parent(revision->path, NULL);
    _cleanup_closedir_ DIR *dir = NULL;
    char *found = NULL;
    struct dirent *entry;
    struct stat st;
    int r = 0;

    /* Every name in a directory that is reverted is inside. */
    if (revision->dir < 0 || revert_set_has(revert->set, parent))
        return NULL;
    dir = wb_opendir_at(revision->dir, ".");
    while (dir && !found && wb_next_entry(dir, &entry, &r)) {
        g_autofree char *path = wb_path_join(parent, entry->d_name);

        if (entry->d_ino == revision->have.st_ino && !revert_set_has(revert->set, path) &&
            fstatat(dirfd(dir), entry->d_name, &st, AT_SYMLINK_NOFOLLOW) == 0 && st.st_ino == revision->have.st_ino)
            found = g_steal_pointer(&path);
    }
    return found;
}

int revert_differs(const struct revision *revision, int dir, const char *name)
{
    _cleanup_fd_ int held = wb_hold(dir, name, NULL);
    const char *what;
    int r;

    if (held < 0)
        return held;
    if (S_ISREG(revision->want.st_mode)) {
        _cleanup_fd_ int from = openat(revision->past_dir, revision->past_name, O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
        _cleanup_fd_ int to = wb_held_open(held, O_RDONLY);

        if (from < 0)
            return -errno;
        /* A file the user may not read cannot be compared; a copy is right in any case. */
        if (to < 0)
            return to == -EACCES ? 1 : to;
        r = wb_copy_equal(from, to);
        if (r <= 0)
            return r < 0 ? r : 1;
    }
    return wb_copy_attrs(revision->past_dir, revision->past_name, &revision->want, held, WB_ATTRS_DRY, &what);
}
