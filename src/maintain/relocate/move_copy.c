/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * What a store holds, copied to where it goes: a walk through both, file by file (move_file.c). What is there already
 * and has not changed since is not copied again, whenever the move is gone on with; but what may not have reached the
 * disk is.
 */
#include "maintain/relocate/move_parts.h"

#include "base/cleanup.h"
#include "base/dir.h"
#include "base/io.h"
#include "wayback/when.h"
#include <errno.h>
#include <fcntl.h>
#include <glib.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

/* After so much, what was copied is brought to the disk, so that an interruption costs no more. */
#define UNSYNCED_BYTES (UINT64_C(256) << 20)
#define UNSYNCED_FILES 8192
/* More than file systems are behind the clock with the times they give. */
#define SLACK WB_WHEN_SECOND

static bool same_time(struct timespec a, struct timespec b)
{
    return a.tv_sec == b.tv_sec && a.tv_nsec == b.tv_nsec;
}

static int64_t when_of(struct timespec time)
{
    return time.tv_sec * INT64_C(1000000000) + time.tv_nsec;
}

/* What is no part of the copy: on its way by itself, or each directory's own. */
static bool stays(const char *name, unsigned depth)
{
    static const char *const names[] = {WB_SIGNPOST_NAME, "." WB_SIGNPOST_NAME ".new", WB_LOCK_NAME, WB_HEADER_NAME,
                                        WB_ARRIVING_NAME, "." WB_HEADER_NAME ".new", ".probe", "lost+found",
                                        WB_MOVING_TEMPORARY};

    if (depth == 0)
        for (size_t i = 0; i < G_N_ELEMENTS(names); i++)
            if (strcmp(name, names[i]) == 0)
                return true;
    return false;
}

static bool is_copied(const char *top, const char *name, unsigned depth)
{
    return !stays(name, depth) && !(strcmp(top, WB_LOST_NAME) != 0 && wb_grave_is_body(name));
}

/* ---- files ------------------------------------------------------------------------------------- */

int wb_moving_copy_as(struct wb_moving *moving, const char *from, const char *to)
{
    int r = wb_moving_copy_file(moving, moving->from_fd, from, moving->to_fd, to);

    return r == 0 && syncfs(moving->to_fd) < 0 ? -errno : r;
}

int wb_moving_sync(struct wb_moving *moving)
{
    int64_t now = wb_when_now();
    int r = syncfs(moving->to_fd) < 0 ? -errno : 0;

    moving->unsynced_files = moving->unsynced_bytes = 0;
    moving->coming.synced = now;
    return r < 0 ? r : wb_signpost_write(moving->to_fd, &moving->coming);
}

static bool is_there(const struct wb_moving *moving, int to_dir, const char *name, const struct stat *st)
{
    struct stat there;

    return to_dir >= 0 && fstatat(to_dir, name, &there, AT_SYMLINK_NOFOLLOW) == 0 && there.st_mode == st->st_mode &&
           there.st_size == st->st_size && same_time(there.st_mtim, st->st_mtim) &&
           same_time(there.st_atim, st->st_ctim) && when_of(there.st_ctim) < moving->coming.synced;
}

/* The last pass copied it or found it there, and it is as it was. After a clock was set nobody can tell by it. */
static bool is_known(const struct wb_moving *moving, const struct stat *st)
{
    return moving->done > 0 && when_of(st->st_ctim) < moving->done - SLACK &&
           ABS(moving->shift - moving->done_shift) < SLACK / 10;
}

/* A file that has several names in the store is copied once, and its copy has them. Whether it was copied before. */
static bool is_linked(struct wb_moving *moving, const struct stat *st, const char **ret)
{
    guint64 ino = st->st_ino;

    *ret = NULL;
    if (!S_ISREG(st->st_mode) || st->st_nlink < 2)
        return false;
    if (!moving->links)
        moving->links = g_hash_table_new_full(g_int64_hash, g_int64_equal, g_free, g_free);
    return g_hash_table_lookup_extended(moving->links, &ino, NULL, (gpointer *)ret);
}

static int note_link(struct wb_moving *moving, const struct stat *st, int to_dir, const char *name)
{
    guint64 ino = st->st_ino;
    char link[32];
    g_autofree char *parent = NULL;

    if (!moving->links || st->st_nlink < 2 || !S_ISREG(st->st_mode))
        return 0;
    parent = to_dir < 0 ? g_strdup("") : g_file_read_link(wb_fd_path(to_dir, link), NULL);
    if (!parent)
        return -EIO;
    g_hash_table_insert(moving->links, g_memdup2(&ino, sizeof(ino)), g_build_filename(parent, name, NULL));
    return 0;
}

static int link_copy(struct wb_moving *moving, const char *copy, int to_dir, const char *name)
{
    struct stat a, b;

    if (stat(copy, &a) == 0 && fstatat(to_dir, name, &b, AT_SYMLINK_NOFOLLOW) == 0 && a.st_dev == b.st_dev &&
        a.st_ino == b.st_ino)
        return 0;
    if (unlinkat(moving->to_fd, WB_MOVING_TEMPORARY, 0) < 0 && errno != ENOENT)
        return -errno;
    return linkat(AT_FDCWD, copy, moving->to_fd, WB_MOVING_TEMPORARY, 0) < 0 ||
                   renameat(moving->to_fd, WB_MOVING_TEMPORARY, to_dir, name) < 0
               ? -errno
               : 0;
}

static int take_file(struct wb_moving *moving, int from_dir, int to_dir, const char *name, const struct stat *st)
{
    uint64_t bytes = (uint64_t)st->st_blocks * 512;
    const char *copy;
    int r = 0;

    if (to_dir != moving->to_fd && is_known(moving, st)) {
        moving->result->there++;
        return 0;
    }
    if (is_linked(moving, st, &copy))
        return moving->look_only ? 0 : link_copy(moving, copy, to_dir, name);
    /* Stores into a mapping, as of `inflight`, are not told by ctime; what lies beside it is small. */
    if (to_dir != moving->to_fd && is_there(moving, to_dir, name, st)) {
        moving->result->there++;
        return note_link(moving, st, to_dir, name);
    }
    moving->result->files++;
    moving->result->bytes += bytes;
    if (moving->look_only)
        return note_link(moving, st, to_dir, name);
    r = S_ISREG(st->st_mode) ? wb_moving_copy_file(moving, from_dir, name, to_dir, name)
                             : wb_moving_copy_other(from_dir, to_dir, name, st);
    /* Beside a daemon: it was renamed or removed just now. */
    if (r == -ENOENT)
        return 0;
    if (r == 0)
        r = note_link(moving, st, to_dir, name);
    if (r == 0 && moving->progress && !moving->progress(1, bytes, moving->data))
        return -ECANCELED;
    moving->unsynced_bytes += bytes;
    moving->unsynced_files++;
    if (r == 0 && (moving->unsynced_bytes > UNSYNCED_BYTES || moving->unsynced_files > UNSYNCED_FILES))
        r = wb_moving_sync(moving);
    return r;
}

/* ---- directories ------------------------------------------------------------------------------- */

/* Whether it is `objects`, or a directory in it. */
static bool is_of_grave(const char *top, unsigned depth)
{
    return depth <= 1 && strcmp(top, WB_OBJECTS_NAME) == 0;
}

/* Of those that are copied. */
static int count_entries(int dir_fd, const char *top, unsigned depth, uint64_t *ret)
{
    _cleanup_closedir_ DIR *dir = wb_opendir_at(dir_fd, ".");
    struct dirent *entry;
    int r = 0;

    *ret = 0;
    if (!dir)
        return -errno;
    while (wb_next_entry(dir, &entry, &r))
        *ret += is_copied(depth ? top : entry->d_name, entry->d_name, depth);
    return r;
}

/* Removes what `is_copied` says of a directory; with `from_fd`, only what is not there. */
static int sweep(int dir_fd, int from_fd, const char *top, unsigned depth, bool is_grave)
{
    _cleanup_closedir_ DIR *dir = wb_opendir_at(dir_fd, ".");
    struct dirent *entry;
    struct stat st;
    int r = 0;

    if (!dir)
        return -errno;
    while (wb_next_entry(dir, &entry, &r)) {
        const char *name = entry->d_name;
        _cleanup_close_ int inner = -1;

        if (!is_copied(depth ? top : name, name, depth) ||
            (from_fd >= 0 && fstatat(from_fd, name, &st, AT_SYMLINK_NOFOLLOW) == 0))
            continue;
        if (unlinkat(dir_fd, name, 0) == 0 || errno == ENOENT)
            continue;
        inner = openat(dir_fd, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
        r = inner < 0 ? -errno : sweep(inner, -1, depth ? top : name, depth + 1, is_grave);
        /* Where deleted files stay, their directory does. */
        if (r < 0 || (is_grave && is_of_grave(depth ? top : name, depth)))
            continue;
        if (unlinkat(dir_fd, name, AT_REMOVEDIR) < 0 && errno != ENOTEMPTY && errno != EEXIST)
            r = -errno;
    }
    return r;
}

static int walk(struct wb_moving *moving, int from_fd, int to_fd, const char *top, unsigned depth);

static int take_directory(struct wb_moving *moving, int from_fd, int to_fd, const char *name, const char *top,
                          unsigned depth)
{
    _cleanup_close_ int from = openat(from_fd, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC), to = -1;

    if (from < 0)
        return -errno;
    if (!moving->look_only && mkdirat(to_fd, name, 0700) < 0 && errno != EEXIST)
        return -errno;
    if (to_fd >= 0)
        to = openat(to_fd, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (to < 0 && !moving->look_only)
        return -errno;
    return walk(moving, from, to, depth ? top : name, depth + 1);
}

static int walk(struct wb_moving *moving, int from_fd, int to_fd, const char *top, unsigned depth)
{
    _cleanup_closedir_ DIR *dir = wb_opendir_at(from_fd, ".");
    struct dirent *entry;
    uint64_t count = 0, there = 0;
    struct stat st;
    int r = 0;

    if (!dir)
        return -errno;
    while (wb_next_entry(dir, &entry, &r)) {
        const char *name = entry->d_name;

        if (!is_copied(depth ? top : name, name, depth))
            continue;
        count++;
        if (fstatat(from_fd, name, &st, AT_SYMLINK_NOFOLLOW) < 0)
            r = errno == ENOENT ? 0 : -errno;
        else if (S_ISDIR(st.st_mode))
            r = take_directory(moving, from_fd, to_fd, name, top, depth);
        else
            r = take_file(moving, from_fd, to_fd, name, &st);
    }
    if (r < 0 || moving->look_only)
        return r;
    /* All that is here is there: only if there is more there, something of it is not here. */
    r = count_entries(to_fd, top, depth, &there);
    return r == 0 && there != count ? sweep(to_fd, from_fd, top, depth, false) : r;
}

static int64_t since_boot(void)
{
    struct timespec now;

    return clock_gettime(CLOCK_BOOTTIME, &now) < 0 ? 0 : when_of(now);
}

int wb_moving_copy(struct wb_moving *moving, struct wb_problem *why)
{
    int r;

    moving->begun = wb_when_now();
    moving->shift = moving->begun - since_boot();
    g_clear_pointer(&moving->links, g_hash_table_unref);
    r = walk(moving, moving->from_fd, moving->to_fd, "", 0);
    g_clear_pointer(&moving->links, g_hash_table_unref);
    if (r == -ECANCELED)
        return wb_problem_set(why, r, "stopped; the store was not moved, and the next attempt uses the copied files");
    if (r == 0 && !moving->look_only)
        r = wb_moving_sync(moving);
    moving->done = r == 0 && !moving->look_only ? moving->begun : 0;
    moving->done_shift = moving->shift;
    return r < 0 ? wb_problem_set(why, r, "cannot copy the store to %s: %s; it was not moved", moving->result->to,
                                  g_strerror(-r)) : 0;
}

int wb_moving_clear(int dir_fd, bool is_grave)
{
    int r;

    /* The header first: without it, an older program does not take this for a store either. */
    if ((unlinkat(dir_fd, WB_HEADER_NAME, 0) < 0 && errno != ENOENT) ||
        (unlinkat(dir_fd, WB_ARRIVING_NAME, 0) < 0 && errno != ENOENT))
        return -errno;
    r = sweep(dir_fd, -1, "", 0, is_grave);
    if (r == 0 && ((unlinkat(dir_fd, WB_LOCK_NAME, 0) < 0 && errno != ENOENT) ||
                   (unlinkat(dir_fd, WB_MOVING_TEMPORARY, 0) < 0 && errno != ENOENT)))
        r = -errno;
    return r;
}
