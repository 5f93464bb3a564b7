/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "client/revert/revert_parts.h"

#include "client/control.h"
#include "client/fd.h"
#include "client/past_path.h"
#include "client/path.h"
#include "client/watch.h"
#include <fcntl.h>
#include <stdio.h>

/*
 * Decides for an object with another present name than the name to restore: if it had the other name at T, too, both
 * belong to it, and the missing one is linked; otherwise the object was renamed.
 */

void revert_key(const struct wb_control_identity *identity, char key[48])
{
    snprintf(key, 48, "%" G_GUINT64_FORMAT "-%" G_GINT64_FORMAT, identity->ino, identity->birth);
}

static bool was_at(const struct revert *revert, const struct revision *revision, const char *path)
{
    struct wb_control_identity then;

    return wb_request_identify(revert->mount->root_fd, path, &then) == 0 && then.ino == revision->identity.ino &&
           then.birth == revision->identity.birth;
}

/* Collects the directories that were below the reverted path at T. */
static void collect(struct revert *revert, int dir, const char *name)
{
    _cleanup_fd_ int fd = openat(dir, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    g_autoptr(GPtrArray) names = fd < 0 ? NULL : wb_fd_names(fd);
    struct wb_control_identity identity;
    struct stat st;
    char key[48];

    if (fd < 0 || wb_watch_stopped())
        return;
    if (wb_request_identify(fd, "", &identity) == 0) {
        revert_key(&identity, key);
        g_hash_table_add(revert->directories, g_strdup(key));
    }
    for (guint i = 0; names && i < names->len; i++) {
        if (fstatat(fd, names->pdata[i], &st, AT_SYMLINK_NOFOLLOW) == 0 && S_ISDIR(st.st_mode))
            collect(revert, fd, names->pdata[i]);
    }
}

/* Whether the directory of the present name was below the reverted path at T: the name moved away with it. */
static bool moved_away(struct revert *revert, const char *living)
{
    int root = revert->mount->root_fd;
    g_autofree char *dir = wb_path_parent(living, NULL);
    struct wb_control_identity now;
    char key[48];

    if (!revert->directories) {
        const char *name;
        _cleanup_fd_ int fd = wb_fd_open_parent(root, revert->source, &name);

        revert->directories = g_hash_table_new_full(g_str_hash, g_str_equal, g_free, NULL);
        if (fd >= 0)
            collect(revert, fd, name);
    }
    if (wb_request_identify(root, dir, &now) < 0)
        return false;
    revert_key(&now, key);
    return g_hash_table_contains(revert->directories, key);
}

bool revert_is_own(struct revert *revert, const struct revision *revision, const char *living)
{
    g_autofree char *shifted = wb_moment_shift(revert->mount, living, revert->when);
    g_autofree char *source = NULL;
    const char *rest;

    /* It had one name only, the one to restore. */
    if (revision->want.st_nlink < 2)
        return false;
    if (wb_path_below(living, revert->path, &rest)) {
        /* By its directory or, if that is itself a copy, by the path. Pass 2 removes a superfluous link. */
        source = wb_path_join(revert->source, rest);
        return was_at(revert, revision, shifted) || was_at(revert, revision, source);
    }
    return was_at(revert, revision, shifted) && !moved_away(revert, living);
}
