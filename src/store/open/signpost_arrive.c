/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * The last part of a move, after the store is at the new place. Deleted files are moved by rename, since they are the
 * inodes to which the history belongs; this can be repeated after any interruption. The header comes last, so that the
 * store does not count as complete before.
 */
#include "store/directory/signpost.h"

#include "base/cleanup.h"
#include "base/dir.h"
#include "base/io.h"
#include "store/parts.h"
#include <errno.h>
#include <fcntl.h>
#include <glib.h>
#include <stdio.h>
#include <string.h>

bool wb_grave_is_body(const char *name)
{
    return g_str_has_suffix(name, ".data") || g_str_has_suffix(name, ".dir") || g_str_has_prefix(name, "restore-");
}

/* Renames deleted files from one directory to the same names in another. */
static int bring(int from_fd, int to_fd)
{
    _cleanup_closedir_ DIR *dir = wb_opendir_at(from_fd, ".");
    struct dirent *entry;
    int r = 0;

    if (!dir)
        return -errno;
    /* Does not replace an existing file: an object is in one place only. */
    while (wb_next_entry(dir, &entry, &r))
        if (wb_grave_is_body(entry->d_name))
            r = wb_grave_bring(from_fd, entry->d_name, to_fd);
    return r;
}

static int bring_bodies(int from_fd, int to_fd)
{
    char path[sizeof(WB_OBJECTS_NAME) + 3];
    int r = bring(from_fd, to_fd);

    for (unsigned i = 0; r == 0 && i < 256; i++) {
        _cleanup_close_ int from = -1, to = -1;

        snprintf(path, sizeof(path), WB_OBJECTS_NAME "/%02x", i);
        from = openat(from_fd, path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
        if (from < 0 && errno == ENOENT)
            continue;
        to = from < 0 ? -1 : openat(to_fd, path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
        r = to < 0 ? -errno : bring(from, to);
    }
    return r == 0 && syncfs(to_fd) < 0 ? -errno : r;
}

/* The former place of deleted files: the old store itself, or the graveyard in SRC; -1: there is none. */
static int open_old_grave(int src_fd, const struct wb_signpost *coming)
{
    int fd;

    if (!coming->buried) {
        fd = wb_store_dir_staging(src_fd, false);
        return fd == -ENOENT ? -1 : fd;
    }
    fd = open(coming->path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    return fd < 0 ? -errno : fd;
}

static int follow_bodies(int from, int to)
{
    struct stat a, b;
    int r;

    if (fstat(from, &a) < 0 || fstat(to, &b) < 0)
        return -errno;
    if (a.st_dev == b.st_dev && a.st_ino == b.st_ino)
        return 0;
    r = wb_store_dir_fill(to);
    return r < 0 ? r : bring_bodies(from, to);
}

static int find_bodies(int src_fd, int dir_fd, const struct wb_signpost *coming)
{
    _cleanup_close_ int from = open_old_grave(src_fd, coming);
    _cleanup_close_ int to = -1;
    int r;

    if (from < 0)
        return from == -1 ? 0 : from;
    r = to = wb_store_dir_grave(src_fd, dir_fd, true);
    return r < 0 ? r : follow_bodies(from, to);
}

/* Writes the header, and then the signpost that says the store is complete. */
static int settle_in(int dir_fd, struct wb_signpost *here)
{
    int r = 0;

    if (renameat(dir_fd, WB_ARRIVING_NAME, dir_fd, WB_HEADER_NAME) < 0 && errno != ENOENT)
        return -errno;
    r = wb_fsync_dir(dir_fd);
    if (r < 0)
        return r;
    here->kind = WB_SIGNPOST_REMAINS;
    here->buried = 0;
    return wb_signpost_write(dir_fd, here);
}

static int complain(int r, const char *home, const struct wb_signpost *here, struct wb_error *why)
{
    return r < 0 ? wb_error_set(why, r, "the store %s was moved from %s, but its deleted files cannot be moved: %s",
                                home, here->path, g_strerror(-r))
                 : 0;
}

int wb_store_arrive_from(int from_grave, int to_grave, int dir_fd, const char *home, struct wb_error *why)
{
    struct wb_signpost here = {.kind = WB_SIGNPOST_REMAINS};
    int r = wb_signpost_read(dir_fd, &here);

    if (r >= 0)
        r = r == 0 ? -ENOENT : follow_bodies(from_grave, to_grave);
    return complain(r < 0 ? r : settle_in(dir_fd, &here), home, &here, why);
}

int wb_store_arrive(int src_fd, int dir_fd, const char *home, struct wb_error *why)
{
    struct wb_signpost here;
    int r = wb_signpost_read(dir_fd, &here);

    if (r == 0 || (r > 0 && here.kind == WB_SIGNPOST_REMAINS)) {
        /* Left by a move that was interrupted just before its signpost led away. */
        unlinkat(dir_fd, "." WB_SIGNPOST_NAME ".new", 0);
        return 0;
    }
    if (r > 0 && here.kind == WB_SIGNPOST_LEADS)
        return wb_error_set(why, -EBUSY, "the store %s was moved to %s meanwhile; try again", home, here.path);
    if (r > 0)
        r = find_bodies(src_fd, dir_fd, &here);
    return complain(r < 0 ? r : settle_in(dir_fd, &here), home, &here, why);
}
