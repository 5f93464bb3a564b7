/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "restores.h"
#include "client/control.h"
#include "client/fd.h"
#include "client/past_path.h"
#include "client/path.h"
#include "common/cli.h"
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>

/*
 * The record of a change of a file with several names has one of them. The others have the same content, so that they
 * are among the paths that the restore changed. Nothing records where they are: they are searched for in the states
 * before and after the restore, first around the paths that are known, then further up until all links are found.
 */

struct search {
    GHashTable *linked; /* the files, by their objects                  */
    GHashTable *names;  /* that were found                              */
    uint64_t links;     /* number of links of all files that were found */
};

static void look_at(struct search *search, int dir, const char *name, const struct stat *st, const char *path)
{
    struct wb_control_identity identity;
    char object[RESTORE_OBJECT_MAX];
    uint64_t *known;

    if (wb_request_identify(dir, name, &identity) < 0)
        return;
    restore_object(identity.ino, identity.birth, object);
    if (!g_hash_table_lookup_extended(search->linked, object, NULL, (void **)&known))
        return;
    if (*known == 0)
        search->links += st->st_nlink;
    *known = st->st_nlink;
    g_hash_table_add(search->names, g_strdup(path));
}

static void search_below(struct search *search, int dir, const char *path)
{
    g_autoptr(GPtrArray) names = wb_fd_names(dir);

    for (guint i = 0; names && i < names->len && !wb_cli_interrupted(); i++) {
        g_autofree char *below = wb_path_join(path, names->pdata[i]);
        struct stat st;

        if (fstatat(dir, names->pdata[i], &st, AT_SYMLINK_NOFOLLOW) < 0)
            continue;
        if (S_ISDIR(st.st_mode)) {
            _cleanup_fd_ int fd = openat(dir, names->pdata[i], O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);

            if (fd >= 0)
                search_below(search, fd, below);
        } else if (st.st_nlink > 1) {
            look_at(search, dir, names->pdata[i], &st, below);
        }
    }
}

/* A directory as it was. A descriptor, or -1. */
static int open_past(const struct wb_mount *mount, const char *path, int64_t when)
{
    g_autofree char *source = NULL;
    const char *name;
    _cleanup_fd_ int parent = -1;

    if (wb_moment_path(mount, path, when, &source) < 0)
        return -1;
    parent = wb_fd_open_parent(mount->root_fd, source, &name);
    return parent < 0 ? -1 : openat(parent, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
}

static void search_at(struct restore *restore, const struct wb_mount *mount, int64_t when)
{
    g_autoptr(GHashTable) names = g_hash_table_new_full(g_str_hash, g_str_equal, g_free, NULL);
    struct search search = {.linked = restore->linked, .names = names};
    g_autofree char *path = wb_path_parent(restore->top, NULL);
    GHashTableIter iter;
    void *value;

    g_hash_table_iter_init(&iter, restore->linked);
    while (g_hash_table_iter_next(&iter, NULL, &value))
        *(uint64_t *)value = 0;
    do {
        _cleanup_fd_ int dir = open_past(mount, path, when);

        if (dir >= 0)
            search_below(&search, dir, path);
        if (!*path)
            break;
        *(strrchr(path, '/') ?: path) = '\0';
    } while (g_hash_table_size(names) < search.links && !wb_cli_interrupted());
    g_hash_table_iter_init(&iter, names);
    while (g_hash_table_iter_next(&iter, &value, NULL))
        wb_changed_add(restore->paths, value, false);
}

void restore_find_links(const struct wb_mount *mount, struct restore *restore)
{
    if (g_hash_table_size(restore->linked) == 0)
        return;
    search_at(restore, mount, restore->first - 1);
    search_at(restore, mount, restore->last);
    g_hash_table_remove_all(restore->linked);
    g_free(restore->top);
    restore->top = wb_changed_top(restore->paths);
}
