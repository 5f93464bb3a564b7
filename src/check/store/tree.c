/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* The tree: which objects it has, and whether what the catalogs say of its directories holds. */
#include "check/checking.h"

#include "base/cleanup.h"
#include "base/dir.h"
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>

struct tree_walk {
    struct wb_checking *checking;
    GString *path;
    unsigned depth;
};

static int walk_dir(struct tree_walk *walk, int fd, struct wb_object dir);

static bool is_ours(const struct tree_walk *walk, const char *name)
{
    return walk->depth == 0 && (strcmp(name, WB_STORE_NAME) == 0 || strcmp(name, WB_STAGING_NAME) == 0);
}

static char *path_of(const struct tree_walk *walk, const char *name)
{
    return *walk->path->str ? g_strdup_printf("%s/%s", walk->path->str, name) : g_strdup(name);
}

static void note_file(struct tree_walk *walk, struct wb_known *known, const char *name, const struct wb_attrs *attrs,
                      GHashTable *newest)
{
    known->is_file = true;
    known->size = attrs->size;
    known->mtime = attrs->mtime;
    known->ctime = attrs->ctime;
    if (!known->path && newest)
        known->path = path_of(walk, name);
}

/* `newest`: of the records of names here; NULL: there are none. */
static int visit(struct tree_walk *walk, int dir_fd, struct wb_object dir, const char *name, GHashTable *newest)
{
    struct wb_checking *checking = walk->checking;
    size_t length = walk->path->len;
    _cleanup_close_ int fd = -1;
    struct wb_known *known;
    struct wb_object object;
    struct wb_attrs attrs;
    const int64_t *when = newest ? g_hash_table_lookup(newest, name) : NULL;
    struct stat st;
    int r = wb_check_stat(checking, dir_fd, name, &object, &attrs, &st);

    if (r < 0)
        return r == -ENOENT ? 0 : r;
    /* A mount point belongs to another file system, and has no history here. */
    if (st.st_dev != checking->src_dev)
        return 0;
    known = wb_check_known(checking, object);
    if (!known)
        return -ENOMEM;
    known->spread |= known->names > 0 && !wb_object_equal(known->dir, dir);
    known->dir = dir;
    known->names++;
    known->is_dir = S_ISDIR(st.st_mode);
    known->newest = MAX(known->newest, when ? *when : 0);
    if (S_ISREG(st.st_mode))
        note_file(walk, known, name, &attrs, newest);
    /* Its catalog may have to be begun anew (manifest.c). */
    if (known->is_dir && !known->path && checking->lost && checking->lost->len > 0)
        known->path = path_of(walk, name);
    checking->result.entries++;
    if (!wb_check_progress(checking, 1, 0))
        return -ECANCELED;
    if (!known->is_dir)
        return 0;
    fd = openat(dir_fd, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (fd < 0)
        return errno == ENOENT ? 0 : -errno;
    if (length > 0)
        g_string_append_c(walk->path, '/');
    g_string_append(walk->path, name);
    walk->depth++;
    r = walk_dir(walk, fd, object);
    walk->depth--;
    g_string_truncate(walk->path, length);
    return r;
}

static int walk_dir(struct tree_walk *walk, int fd, struct wb_object object)
{
    _cleanup_closedir_ DIR *dir = wb_opendir_at(fd, ".");
    g_autoptr(GHashTable) newest = NULL;
    struct dirent *entry;
    int r;

    if (!dir)
        return -errno;
    r = wb_check_names(walk->checking, fd, object, walk->path->str, &newest);
    while (wb_next_entry(dir, &entry, &r))
        if (!is_ours(walk, entry->d_name))
            r = visit(walk, fd, object, entry->d_name, newest);
    return r;
}

int wb_check_tree(struct wb_checking *checking)
{
    struct tree_walk walk = {.checking = checking, .path = g_string_new("")};
    struct stat st;
    int r = fstat(checking->src_fd, &st) < 0 ? -errno : 0;

    checking->src_dev = st.st_dev;
    if (r == 0)
        r = walk_dir(&walk, checking->src_fd, checking->header.root);
    g_string_free(walk.path, TRUE);
    return r;
}
