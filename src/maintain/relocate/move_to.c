/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Where a store goes to: whether it may, and the word that it comes. */
#include "base/cleanup.h"
#include "base/dir.h"
#include "base/io.h"
#include "maintain/relocate/move_parts.h"
#include "store/parts.h"
#include "store/tables/pins.h"
#include <errno.h>
#include <fcntl.h>
#include <glib.h>
#include <stdio.h>
#include <string.h>

int wb_move_path(int fd, char path[4096])
{
    char link[32];
    ssize_t length = readlink(wb_fd_path(fd, link), path, 4095);

    if (length < 0)
        return -errno;
    path[length] = '\0';
    return path[0] == '/' ? 0 : -ENOENT;
}

bool wb_move_same_dir(int a_fd, int b_fd)
{
    struct stat a, b;

    return fstat(a_fd, &a) == 0 && fstat(b_fd, &b) == 0 && a.st_dev == b.st_dev && a.st_ino == b.st_ino;
}

/* Whether a directory holds nothing but what a move to there, now or before, may have left. */
static int check_empty(struct wb_moving *moving, const struct wb_signpost *there, struct wb_error *why)
{
    static const char *const left[] = {WB_SIGNPOST_NAME, WB_LOCK_NAME, WB_OBJECTS_NAME, WB_LOST_NAME};
    _cleanup_closedir_ DIR *dir = wb_opendir_at(moving->to_fd, ".");
    struct dirent *entry;
    int r = 0;

    if (!dir)
        return wb_error_set(why, -errno, "cannot read %s: %s", moving->result->to, g_strerror(errno));
    if (there && there->kind == WB_SIGNPOST_COMING && memcmp(there->uuid, moving->coming.uuid, 16) == 0)
        return 0;
    while (wb_next_entry(dir, &entry, &r)) {
        bool known = strcmp(entry->d_name, "lost+found") == 0 ||
                     strcmp(entry->d_name, "." WB_SIGNPOST_NAME ".new") == 0;

        for (size_t i = 0; there && i < G_N_ELEMENTS(left); i++)
            known |= strcmp(entry->d_name, left[i]) == 0;
        if (!known)
            return wb_error_set(why, -ENOTEMPTY, "%s is not empty (%s is in it); choose an empty or a new directory",
                                moving->result->to, entry->d_name);
    }
    return r < 0 ? wb_error_set(why, r, "cannot read %s: %s", moving->result->to, g_strerror(-r)) : 0;
}

int wb_move_open_to(struct wb_move_places *places, const char *to, struct wb_error *why)
{
    struct wb_moving *moving = &places->moving;
    struct wb_move_result *result = moving->result;
    struct wb_signpost there;
    int r, stands;

    if (moving->look_only) {
        /* What is not there yet is made in the directory above it. */
        g_autofree char *parent = g_path_get_dirname(to);
        char src[4096];

        r = wb_move_path(places->src_fd, src);
        if (r == 0 && g_str_has_prefix(to, src) && to[strlen(src)] == '/' &&
            strcmp(to + strlen(src) + 1, WB_STORE_NAME) != 0)
            return wb_error_set(why, -EINVAL, "%s is inside of the tree; choose a directory outside", to);
        moving->to_fd = open(to, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        if (moving->to_fd < 0 && errno == ENOENT) {
            g_strlcpy(result->to, to, sizeof(result->to));
            moving->to_fd = open(parent, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
            return moving->to_fd < 0 ? wb_error_set(why, -errno, "%s: %s", parent, g_strerror(errno)) : 0;
        }
    } else {
        r = moving->to_fd = wb_store_dir_make(places->src_fd, to, why);
        if (r < 0)
            return r;
    }
    r = moving->to_fd < 0 ? -errno : wb_move_path(moving->to_fd, result->to);
    if (r < 0)
        return wb_error_set(why, r, "%s: %s", to, g_strerror(-r));
    if (wb_move_same_dir(moving->from_fd, moving->to_fd))
        return 0;
    r = stands = wb_signpost_read(moving->to_fd, &there);
    if (r < 0)
        return wb_error_set(why, r, "%s/" WB_SIGNPOST_NAME " cannot be read: %s", result->to, g_strerror(-r));
    r = check_empty(moving, stands ? &there : NULL, why);
    if (r < 0)
        return r;
    if (g_str_has_prefix(result->to, result->from) && result->to[strlen(result->from)] == '/')
        return wb_error_set(why, -EINVAL, "%s is inside of the store; choose a directory outside", result->to);
    if (stands && there.kind == WB_SIGNPOST_COMING)
        moving->coming.synced = there.synced;
    return 0;
}

/* From here on, processes that open the directory know that it is to be the store, and is not yet. */
int wb_move_announce(struct wb_move_places *places, struct wb_error *why)
{
    struct wb_moving *moving = &places->moving;
    _cleanup_close_ int grave = wb_store_dir_grave(places->src_fd, moving->from_fd, false);
    int r;

    moving->coming.kind = WB_SIGNPOST_COMING;
    moving->coming.buried = grave >= 0 && wb_move_same_dir(grave, moving->from_fd);
    g_strlcpy(moving->coming.path, moving->result->from, sizeof(moving->coming.path));
    r = wb_signpost_write(moving->to_fd, &moving->coming);
    if (r < 0)
        return wb_error_set(why, r, "cannot write to %s: %s", moving->result->to, g_strerror(-r));
    r = places->to_lock = wb_store_dir_lock(moving->to_fd, moving->result->to, why);
    return r < 0 ? r : 0;
}

int wb_move_check_readers(const struct wb_store *store, struct wb_error *why)
{
    g_autoptr(GArray) moments = g_array_new(FALSE, FALSE, sizeof(int64_t));
    int r = wb_store_pinned(store, moments);

    if (r == -EBUSY || (r == 0 && moments->len > 0))
        return wb_error_set(why, -EBUSY, "another mount shows this history (-o ro, -o at=TIME); unmount it first");
    /* Where the file system has no such locks, there is none. */
    return 0;
}
