/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Moving a store. Everything is copied to where it goes, under the lock of where it is; then one file, the signpost
 * in the old place, makes the new one the store (store/signpost.h); then what cannot be copied follows, by rename,
 * and what is left in the old place is removed. Whatever ends this in between, the next mount knows which one is
 * the store.
 */
#include "wayback/move.h"

#include "base/cleanup.h"
#include "base/io.h"
#include "capture/recover.h"
#include "keep/move_parts.h"
#include "store/parts.h"
#include "wayback/when.h"
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <glib.h>
#include <stdio.h>
#include <string.h>
#include <sys/statvfs.h>

/* Left free where a store goes to, as it grows. */
#define ROOM_MIN (UINT64_C(16) << 20)

struct places {
    int src_fd;
    int from_lock, to_lock;
    const char *store;
    struct wb_moving moving;
};

static int path_of(int fd, char path[4096])
{
    char link[32];
    ssize_t length = readlink(wb_fd_path(fd, link), path, 4095);

    if (length < 0)
        return -errno;
    path[length] = '\0';
    return path[0] == '/' ? 0 : -ENOENT;
}

static bool same_dir(int a_fd, int b_fd)
{
    struct stat a, b;

    return fstat(a_fd, &a) == 0 && fstat(b_fd, &b) == 0 && a.st_dev == b.st_dev && a.st_ino == b.st_ino;
}

static int open_tree(const char *tree, struct wb_problem *why)
{
    int fd = open(tree, O_RDONLY | O_DIRECTORY | O_CLOEXEC);

    return fd < 0 ? wb_problem_set(why, -errno, "%s; TREE must be a source tree", g_strerror(errno)) : fd;
}

static int read_uuid(int dir_fd, uint8_t uuid[16], struct wb_problem *why)
{
    _cleanup_close_ int fd = wb_open_own(dir_fd, WB_HEADER_NAME, O_RDONLY, 0);
    uint8_t data[WB_HEADER_SIZE];
    struct wb_header header;
    size_t length = 0;
    int r = fd < 0 ? fd : wb_pread_full(fd, data, sizeof(data), 0, &length);

    if (r >= 0)
        r = wb_header_decode(data, length, &header);
    if (r < 0)
        return wb_problem_set(why, r, "the header of the store cannot be read: %s; see vfsck", g_strerror(-r));
    memcpy(uuid, header.uuid, sizeof(header.uuid));
    return 0;
}

/* Opens it as a mount does, so that what a crash left is dealt with and all is on the disk. */
static int settle(struct places *places, struct wb_problem *why)
{
    struct wb_store *store = NULL;
    int r = wb_store_open(&store, places->src_fd, places->store, WB_STORE_WRITE, why);

    if (r < 0)
        return r;
    r = wb_recover(store, NULL);
    wb_store_free(store);
    return r < 0 ? wb_problem_set(why, r, "what a crash left in the store cannot be dealt with: %s", g_strerror(-r))
                 : 0;
}

static int open_from(struct places *places, unsigned flags, struct wb_problem *why)
{
    struct wb_moving *moving = &places->moving;
    const char *home = places->store ? places->store : WB_STORE_NAME;
    int r = flags ? 0 : settle(places, why);

    if (r < 0)
        return r;
    r = moving->from_fd = wb_store_dir_open(places->src_fd, places->store, 0, home, why);
    if (r >= 0 && !flags)
        r = places->from_lock = wb_store_dir_lock(moving->from_fd, home, why);
    if (r >= 0)
        r = read_uuid(moving->from_fd, moving->coming.uuid, why);
    if (r >= 0 && (r = path_of(moving->from_fd, moving->result->from)) < 0)
        wb_problem_set(why, r, "where the store %s is cannot be told", home);
    return r < 0 ? r : 0;
}

/* ---- where it goes to ---------------------------------------------------------------------------- */

/* Whether a directory holds nothing but what a move to there, now or before, may have left. */
static int check_empty(struct wb_moving *moving, const struct wb_signpost *there, struct wb_problem *why)
{
    static const char *const left[] = {WB_SIGNPOST_NAME, WB_LOCK_NAME, WB_OBJECTS_NAME, WB_LOST_NAME};
    int fd = openat(moving->to_fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    _cleanup_closedir_ DIR *dir = fd < 0 ? NULL : fdopendir(fd);
    struct dirent *entry;

    if (!dir)
        return wb_problem_set(why, -errno, "cannot look into %s: %s", moving->result->to, g_strerror(errno));
    if (there && there->kind == WB_SIGNPOST_COMING && memcmp(there->uuid, moving->coming.uuid, 16) == 0)
        return 0;
    while ((entry = readdir(dir))) {
        bool known = strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0 ||
                     strcmp(entry->d_name, "lost+found") == 0 ||
                     strcmp(entry->d_name, "." WB_SIGNPOST_NAME ".new") == 0;

        for (size_t i = 0; there && i < G_N_ELEMENTS(left); i++)
            known |= strcmp(entry->d_name, left[i]) == 0;
        if (!known)
            return wb_problem_set(why, -ENOTEMPTY, "%s is not empty (%s is in it): choose an empty or a new directory",
                                  moving->result->to, entry->d_name);
    }
    return 0;
}

static int open_to(struct places *places, const char *to, struct wb_problem *why)
{
    struct wb_moving *moving = &places->moving;
    struct wb_move_result *result = moving->result;
    struct wb_signpost there;
    int r, stands;

    if (moving->look_only) {
        /* What is not there yet is made in the directory above it. */
        g_autofree char *parent = g_path_get_dirname(to);
        char src[4096];

        r = path_of(places->src_fd, src);
        if (r == 0 && g_str_has_prefix(to, src) && to[strlen(src)] == '/' &&
            strcmp(to + strlen(src) + 1, WB_STORE_NAME) != 0)
            return wb_problem_set(why, -EINVAL, "%s lies inside of the tree: choose a directory outside", to);
        moving->to_fd = open(to, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        if (moving->to_fd < 0 && errno == ENOENT) {
            g_strlcpy(result->to, to, sizeof(result->to));
            moving->to_fd = open(parent, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
            return moving->to_fd < 0 ? wb_problem_set(why, -errno, "%s: %s", parent, g_strerror(errno)) : 0;
        }
    } else {
        r = moving->to_fd = wb_store_dir_make(places->src_fd, to, why);
        if (r < 0)
            return r;
    }
    r = moving->to_fd < 0 ? -errno : path_of(moving->to_fd, result->to);
    if (r < 0)
        return wb_problem_set(why, r, "%s: %s", to, g_strerror(-r));
    if (same_dir(moving->from_fd, moving->to_fd))
        return 0;
    r = stands = wb_signpost_read(moving->to_fd, &there);
    if (r < 0)
        return wb_problem_set(why, r, "%s/" WB_SIGNPOST_NAME " cannot be read: %s", result->to, g_strerror(-r));
    r = check_empty(moving, stands ? &there : NULL, why);
    if (r < 0)
        return r;
    if (g_str_has_prefix(result->to, result->from) && result->to[strlen(result->from)] == '/')
        return wb_problem_set(why, -EINVAL, "%s is inside of the store: choose a directory outside", result->to);
    if (stands && there.kind == WB_SIGNPOST_COMING)
        moving->coming.synced = there.synced;
    return 0;
}

/* Before anything is copied: what there is to copy, and whether it fits. */
static int check_room(struct wb_moving *moving, struct wb_problem *why)
{
    g_autofree char *wanted = NULL, *free_text = NULL;
    struct statvfs space;
    bool look_only = moving->look_only;
    int r;

    moving->look_only = true;
    r = wb_moving_copy(moving, why);
    moving->look_only = look_only;
    if (r < 0)
        return r;
    if (fstatvfs(moving->to_fd, &space) < 0)
        return wb_problem_set(why, -errno, "%s: %s", moving->result->to, g_strerror(errno));
    moving->result->room = (uint64_t)space.f_bavail * space.f_frsize;
    if (moving->result->bytes + ROOM_MIN > moving->result->room) {
        wanted = g_format_size_full(moving->result->bytes + ROOM_MIN, G_FORMAT_SIZE_IEC_UNITS);
        free_text = g_format_size_full(moving->result->room, G_FORMAT_SIZE_IEC_UNITS);
        return wb_problem_set(why, -ENOSPC, "there is no room in %s: %s are needed, %s are free; nothing was copied",
                              moving->result->to, wanted, free_text);
    }
    if (!look_only)
        moving->result->files = moving->result->bytes = moving->result->there = 0;
    return 0;
}

/* From here on, who finds the directory knows that it is to be the store, and is not yet. */
static int announce(struct places *places, struct wb_problem *why)
{
    struct wb_moving *moving = &places->moving;
    _cleanup_close_ int grave = wb_store_dir_grave(places->src_fd, moving->from_fd, false);
    int r;

    moving->coming.kind = WB_SIGNPOST_COMING;
    moving->coming.buried = grave >= 0 && same_dir(grave, moving->from_fd);
    g_strlcpy(moving->coming.path, moving->result->from, sizeof(moving->coming.path));
    r = wb_signpost_write(moving->to_fd, &moving->coming);
    if (r < 0)
        return wb_problem_set(why, r, "cannot write to %s: %s", moving->result->to, g_strerror(-r));
    r = places->to_lock = wb_store_dir_lock(moving->to_fd, moving->result->to, why);
    return r < 0 ? r : 0;
}

/* ---- the move ------------------------------------------------------------------------------------ */

static int lead(int dir_fd, const struct wb_moving *moving)
{
    struct wb_signpost signpost = {.kind = WB_SIGNPOST_LEADS};

    memcpy(signpost.uuid, moving->coming.uuid, sizeof(signpost.uuid));
    g_strlcpy(signpost.path, moving->result->to, sizeof(signpost.path));
    return wb_signpost_write(dir_fd, &signpost);
}

/*
 * The tree itself says where its store is, unless there is another one in it. A graveyard in SRC becomes the directory
 * with the signpost, so that there is one directory of ours in SRC as before, and the root has as many links.
 */
static int lead_from_tree(const struct places *places)
{
    const struct wb_moving *moving = &places->moving;
    _cleanup_close_ int fd = openat(places->src_fd, WB_STORE_NAME, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    _cleanup_close_ int staging = -1;
    struct wb_signpost there;
    int r;

    if (fd >= 0)
        return same_dir(fd, moving->to_fd) || wb_signpost_read(fd, &there) <= 0 ? 0 : lead(fd, moving);
    staging = openat(places->src_fd, WB_STAGING_NAME, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (staging < 0) {
        r = staging = wb_store_dir_make_inside(places->src_fd);
        return r < 0 ? r : lead(staging, moving);
    }
    r = lead(staging, moving);
    if (r == 0 && renameat(places->src_fd, WB_STAGING_NAME, places->src_fd, WB_STORE_NAME) < 0)
        r = -errno;
    return r == 0 ? wb_fsync_dir(places->src_fd) : r;
}

/* The graveyard in SRC that nothing is in any more. */
static void remove_staging(const struct places *places)
{
    _cleanup_close_ int grave = wb_store_dir_grave(places->src_fd, places->moving.to_fd, false);
    _cleanup_close_ int staging = openat(places->src_fd, WB_STAGING_NAME,
                                         O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    char path[sizeof(WB_OBJECTS_NAME) + 3];

    if (staging < 0 || grave < 0 || same_dir(grave, staging))
        return;
    for (unsigned i = 0; i < 256; i++) {
        snprintf(path, sizeof(path), WB_OBJECTS_NAME "/%02x", i);
        unlinkat(staging, path, AT_REMOVEDIR);
    }
    unlinkat(staging, WB_OBJECTS_NAME, AT_REMOVEDIR);
    unlinkat(places->src_fd, WB_STAGING_NAME, AT_REMOVEDIR);
}

/* What a move left in the old place, once the store is to_fd for good. */
static int clear_remains(struct places *places, struct wb_problem *why)
{
    struct wb_moving *moving = &places->moving;
    struct wb_signpost here, there;
    _cleanup_close_ int old = -1, grave = -1;
    struct stat before;
    int r = wb_signpost_read(moving->to_fd, &here);

    if (r <= 0 || here.kind != WB_SIGNPOST_REMAINS)
        return r < 0 ? r : 0;
    if (fstat(places->src_fd, &before) < 0)
        return wb_problem_set(why, -errno, "the root of the tree: %s", g_strerror(errno));
    r = lead_from_tree(places);
    if (r < 0)
        return wb_problem_set(why, r, "the store is in %s now, but that cannot be written into the tree: %s",
                              moving->result->to, g_strerror(-r));
    old = open(here.path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (old < 0 && errno != ENOENT)
        return wb_problem_set(why, -errno, "the store is in %s now; what is left of it in %s cannot be removed: %s",
                              moving->result->to, here.path, g_strerror(errno));
    /* Only where the signpost says so: anything else may be there by now. */
    if (old >= 0 && wb_signpost_read(old, &there) > 0 && there.kind == WB_SIGNPOST_LEADS &&
        memcmp(there.uuid, here.uuid, sizeof(here.uuid)) == 0)
        r = wb_moving_clear(old);
    if (r < 0)
        return wb_problem_set(why, r, "the store is in %s now; what is left of it in %s cannot be removed: %s",
                              moving->result->to, here.path, g_strerror(-r));
    remove_staging(places);
    /* What was cleared may go on as the graveyard: whole, as who checks it expects. */
    r = grave = wb_store_dir_grave(places->src_fd, moving->to_fd, true);
    if (r >= 0)
        r = wb_store_dir_fill(grave);
    if (r < 0)
        return wb_problem_set(why, r, "cannot keep deleted files of the tree: %s", g_strerror(-r));
    /* The root keeps its times: nothing of the user's has changed. A courtesy only. */
    if (futimens(places->src_fd, (struct timespec[]){before.st_atim, before.st_mtim}) < 0)
        errno = 0;
    r = wb_signpost_remove(moving->to_fd);
    return r < 0 ? wb_problem_set(why, r, "%s: %s", moving->result->to, g_strerror(-r)) : 0;
}

static int make_move(struct places *places, struct wb_problem *why)
{
    struct wb_moving *moving = &places->moving;
    int r = announce(places, why);

    if (r == 0)
        r = wb_moving_copy(moving, why);
    if (r < 0 || places->from_lock < 0)
        return r;
    r = wb_moving_copy_as(moving, WB_HEADER_NAME, WB_ARRIVING_NAME);
    if (r < 0)
        return wb_problem_set(why, r, "cannot copy the store to %s: %s; it is where it was", moving->result->to,
                              g_strerror(-r));
    /* This makes it the store. */
    r = lead(moving->from_fd, moving);
    if (r < 0)
        return wb_problem_set(why, r, "cannot write to %s: %s", moving->result->from, g_strerror(-r));
    r = wb_store_arrive(places->src_fd, moving->to_fd, moving->result->to, why);
    if (r < 0)
        return r;
    moving->result->moved = true;
    return clear_remains(places, why);
}

static int move(struct places *places, const char *tree, const char *to, unsigned flags, struct wb_problem *why)
{
    struct wb_moving *moving = &places->moving;
    int r = places->src_fd = open_tree(tree, why);

    if (r >= 0)
        r = open_from(places, flags, why);
    if (r >= 0)
        r = open_to(places, to, why);
    if (r < 0)
        return r;
    if (same_dir(moving->from_fd, moving->to_fd)) {
        moving->result->moved = true;
        return flags ? 0 : clear_remains(places, why);
    }
    r = check_room(moving, why);
    return r < 0 || moving->look_only ? r : make_move(places, why);
}

int wb_store_move(const char *tree, const char *store, const char *to, unsigned flags, wb_move_progress progress,
                  void *data, struct wb_move_result *ret, struct wb_problem *why)
{
    struct places places = {
        .src_fd = -1, .from_lock = -1, .to_lock = -1, .store = store,
        .moving = {.from_fd = -1, .to_fd = -1, .look_only = flags & WB_MOVE_DRY_RUN, .result = ret,
                   .progress = progress, .data = data},
    };
    int r;

    *ret = (struct wb_move_result){.moved = false};
    r = move(&places, tree, to, flags, why);
    wb_close_fd(&places.to_lock);
    wb_close_fd(&places.from_lock);
    wb_close_fd(&places.moving.to_fd);
    wb_close_fd(&places.moving.from_fd);
    wb_close_fd(&places.src_fd);
    return r;
}

int wb_store_where(const char *tree, const char *store, struct wb_move_result *ret, struct wb_problem *why)
{
    _cleanup_close_ int src_fd = open_tree(tree, why), dir_fd = -1, inside = -1;
    struct wb_signpost here;
    int r;

    *ret = (struct wb_move_result){.moved = false};
    if (src_fd < 0)
        return src_fd;
    r = dir_fd = wb_store_dir_open(src_fd, store, WB_STORE_WRITE, store ? store : WB_STORE_NAME, why);
    if (r >= 0)
        r = path_of(dir_fd, ret->from);
    if (r < 0)
        return r;
    inside = openat(src_fd, WB_STORE_NAME, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    ret->apart = inside < 0 || !same_dir(inside, dir_fd);
    r = wb_signpost_read(dir_fd, &here);
    if (r > 0) {
        ret->coming = here.kind == WB_SIGNPOST_COMING;
        g_strlcpy(ret->to, here.path, sizeof(ret->to));
    }
    return 0;
}
