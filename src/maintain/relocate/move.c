/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Moving a store. Everything is copied to where it goes, under the lock of where it is; then one file, the signpost
 * in the old place, makes the new one the store (directory/signpost.h); then what cannot be copied follows, by rename,
 * and what is left in the old place is removed. Whatever ends this in between, the next mount knows which one is
 * the store.
 */
#include "wayback/move.h"

#include "base/cleanup.h"
#include "base/io.h"
#include "capture/recovery/recover.h"
#include "maintain/relocate/move_parts.h"
#include "store/inflight/spans.h"
#include "store/parts.h"
#include <errno.h>
#include <fcntl.h>
#include <glib.h>
#include <stdio.h>
#include <string.h>

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
        return wb_problem_set(why, r, "the header of the store cannot be read: %s; run vfsck", g_strerror(-r));
    memcpy(uuid, header.uuid, sizeof(header.uuid));
    return 0;
}

/* Opens it as a mount does, so that what a crash left is dealt with and all is on the disk. */
static int settle(struct wb_move_places *places, struct wb_problem *why)
{
    struct wb_store *store = NULL;
    int r = wb_store_open(&store, places->src_fd, places->store, WB_STORE_WRITE, why);

    if (r < 0)
        return r;
    r = wb_move_check_readers(store, why);
    if (r < 0) {
        wb_store_free(store);
        return r;
    }
    r = wb_recover(store, NULL);
    wb_store_free(store);
    return r < 0 ? wb_problem_set(why, r, "the recovery of the store after a crash failed: %s", g_strerror(-r))
                 : 0;
}

static int open_from(struct wb_move_places *places, unsigned flags, struct wb_problem *why)
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
    if (r >= 0 && (r = wb_move_path(moving->from_fd, moving->result->from)) < 0)
        wb_problem_set(why, r, "cannot determine the place of the store %s", home);
    return r < 0 ? r : 0;
}

/* ---- the move ------------------------------------------------------------------------------------ */

/* What a move left in the old place, once the store is to_fd for good. */
static int clear_remains(struct wb_move_places *places, struct wb_problem *why)
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
    r = wb_move_lead_from_tree(places);
    if (r < 0)
        return wb_problem_set(why, r, "the store is in %s now, but its new place cannot be recorded in the tree: %s",
                              moving->result->to, g_strerror(-r));
    old = open(here.path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (old < 0 && errno != ENOENT)
        return wb_problem_set(why, -errno, "the store is in %s now; its remaining files in %s cannot be removed: %s",
                              moving->result->to, here.path, g_strerror(errno));
    /* Only where the signpost says so: anything else may be there by now. */
    if (old >= 0 && wb_signpost_read(old, &there) > 0 && there.kind == WB_SIGNPOST_LEADS &&
        memcmp(there.uuid, here.uuid, sizeof(here.uuid)) == 0)
        r = wb_moving_clear(old, false);
    if (r < 0)
        return wb_problem_set(why, r, "the store is in %s now; its remaining files in %s cannot be removed: %s",
                              moving->result->to, here.path, g_strerror(-r));
    wb_move_remove_staging(places);
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

static int make_move(struct wb_move_places *places, struct wb_problem *why)
{
    struct wb_moving *moving = &places->moving;
    int r = wb_move_announce(places, why);

    if (r == 0)
        r = wb_moving_copy(moving, why);
    if (r < 0 || places->from_lock < 0)
        return r;
    r = wb_moving_copy_as(moving, WB_HEADER_NAME, WB_ARRIVING_NAME);
    if (r < 0)
        return wb_problem_set(why, r, "cannot copy the store to %s: %s; it was not moved", moving->result->to,
                              g_strerror(-r));
    /* This makes it the store. */
    r = wb_move_lead(moving->from_fd, moving);
    if (r < 0)
        return wb_problem_set(why, r, "cannot write to %s: %s", moving->result->from, g_strerror(-r));
    r = wb_store_arrive(places->src_fd, moving->to_fd, moving->result->to, why);
    if (r < 0)
        return r;
    moving->result->moved = true;
    return clear_remains(places, why);
}

/* Makes `change`, of which the records say nothing, while everything that happens in SRC counts as recorded. */
static int in_offline_span(struct wb_move_places *places, int (*change)(struct wb_move_places *, struct wb_problem *),
                           struct wb_problem *why)
{
    struct wb_moving *moving = &places->moving;
    int r = wb_spans_begin_offline(moving->from_fd);

    if (r < 0)
        return wb_problem_set(why, r, "cannot write to %s: %s", moving->result->from, g_strerror(-r));
    r = change(places, why);
    /* Where it cannot be written, changes that others make before the next mount go unnoticed. */
    if (wb_spans_end_offline(moving->result->moved ? moving->to_fd : moving->from_fd) < 0)
        errno = 0;
    return r;
}

static int move(struct wb_move_places *places, const char *tree, const char *to, unsigned flags, struct wb_problem *why)
{
    struct wb_moving *moving = &places->moving;
    int r = places->src_fd = open_tree(tree, why);

    if (r >= 0)
        r = open_from(places, flags, why);
    if (r >= 0)
        r = wb_move_open_to(places, to, why);
    if (r < 0)
        return r;
    if (wb_move_same_dir(moving->from_fd, moving->to_fd)) {
        moving->result->moved = true;
        return flags ? 0 : in_offline_span(places, clear_remains, why);
    }
    r = wb_move_check_room(moving, why);
    return r < 0 || moving->look_only ? r : in_offline_span(places, make_move, why);
}

int wb_store_move(const char *tree, const char *store, const char *to, unsigned flags, wb_move_progress progress,
                  void *data, struct wb_move_result *ret, struct wb_problem *why)
{
    struct wb_move_places places = {
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
        r = wb_move_path(dir_fd, ret->from);
    if (r < 0)
        return r;
    inside = openat(src_fd, WB_STORE_NAME, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    ret->apart = inside < 0 || !wb_move_same_dir(inside, dir_fd);
    r = wb_signpost_read(dir_fd, &here);
    if (r > 0) {
        ret->coming = here.kind == WB_SIGNPOST_COMING;
        g_strlcpy(ret->to, here.path, sizeof(ret->to));
    }
    return 0;
}
