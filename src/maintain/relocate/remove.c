/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Opens the store of a tree for its removal: only one that belongs to this tree, with its lock held. */
#include "wayback/move.h"

#include "base/cleanup.h"
#include "base/dir.h"
#include "base/io.h"
#include "maintain/relocate/move_parts.h"
#include "store/identity/identities.h"
#include "store/parts.h"
#include <errno.h>
#include <fcntl.h>
#include <glib.h>
#include <string.h>
#include <unistd.h>

/* The root of the tree has to be the one in the header: a copy of a tree leads to the store of the original. */
static int check_root(int src_fd, int dir_fd, const char *tree, const char *store, struct wb_error *why)
{
    struct wb_identities *identities = NULL;
    struct wb_header header;
    struct wb_object root;
    int r = wb_move_read_header(dir_fd, &header);

    if (r == 0)
        r = wb_object_stat(NULL, src_fd, NULL, &root, NULL, NULL);
    if (r == 0)
        r = wb_identities_open(&identities, dir_fd);
    if (r == 0)
        r = wb_identities_is_root(identities, root, header.root);
    wb_identities_free(identities);
    if (r < 0)
        return wb_error_set(why, r,
                            "it is unknown whether the store %s belongs to %s (%s); run vfsck, or remove that store "
                            "and %s/" WB_STORE_NAME " by hand",
                            store, tree, g_strerror(-r), tree);
    if (r == 0)
        return wb_error_set(why, -EXDEV,
                            "the store %s belongs to another tree (%s was copied, moved or restored); nothing was "
                            "removed. If the other tree does not exist any more, bind its store to this one with vfsck "
                            "--rebind; else remove only %s/" WB_STORE_NAME,
                            store, tree, tree);
    return 0;
}

int wb_store_open_to_remove(const char *tree, const char *store, struct wb_removal *ret, struct wb_error *why)
{
    _cleanup_close_ int src_fd = open(tree, O_RDONLY | O_DIRECTORY | O_CLOEXEC), dir_fd = -1, inside = -1, lock = -1;
    const char *home = store ? store : tree;
    int r;

    *ret = (struct wb_removal){.tree_fd = -1, .store_fd = -1, .lock_fd = -1};
    if (src_fd < 0)
        return wb_error_set(why, -errno, "%s: %s", tree, g_strerror(errno));
    r = dir_fd = wb_store_dir_open(src_fd, store, WB_STORE_WRITE, home, why);
    if (r >= 0)
        r = wb_move_path(dir_fd, ret->store);
    if (r < 0)
        return *why->text ? r : wb_error_set(why, r, "the store of %s: %s", tree, g_strerror(-r));
    inside = openat(src_fd, WB_STORE_NAME, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    ret->apart = inside < 0 || !wb_move_same_dir(inside, dir_fd);
    r = lock = wb_store_dir_lock(dir_fd, ret->store, why);
    /* Without its lock, no process has a store open for writing; it may be incomplete. */
    if (r == -ENOENT)
        r = 0;
    if (r >= 0 && ret->apart)
        r = check_root(src_fd, dir_fd, tree, ret->store, why);
    if (r < 0)
        return *why->text ? r : wb_error_set(why, r, "the store %s: %s", ret->store, g_strerror(-r));
    ret->tree_fd = wb_steal_fd(&src_fd);
    ret->store_fd = wb_steal_fd(&dir_fd);
    ret->lock_fd = lock < 0 ? -1 : wb_steal_fd(&lock);
    return 0;
}

bool wb_store_has_name(const char *name)
{
    /* `lost+found` is of the file system. */
    if (strcmp(name, "lost+found") == 0)
        return false;
    return wb_store_dir_owns(name) || strcmp(name, WB_MOVING_TEMPORARY) == 0 ||
           (g_str_has_prefix(name, WB_CONFIG_NAME ".") && g_str_has_suffix(name, ".new")) ||
           (g_str_has_prefix(name, "restore-") && strlen(name) == strlen("restore-") + WB_OBJECT_TEXT_MAX - 1);
}
