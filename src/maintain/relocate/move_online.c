/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Moves the store of a running daemon. Most files are copied during changes, in several passes until little is left.
 * Then all other threads are blocked: the rest is copied, the copy is opened, and only when no step but that of the
 * deleted files can fail any more, the signpost is written. Blocked threads then find the store at the new place.
 *
 * Deleted files follow by rename(2), and the root gets a directory and a signpost: for such parts, and not during the
 * copy, everything counts as recorded.
 */
#include "maintain/relocate/move_online.h"

#include "base/cleanup.h"
#include "base/io.h"
#include "maintain/relocate/move_parts.h"
#include "store/inflight/spans.h"
#include "store/open/store_follow.h"
#include "store/parts.h"
#include "store/tables/pins.h"
#include <errno.h>
#include <fcntl.h>
#include <glib.h>
#include <stdio.h>
#include <string.h>

/* So many files can be copied while all changes wait; if more are changed all the time, changes wait for more. */
#define FEW 64
#define ROUNDS_MAX 5

struct online {
    struct wb_store *store;
    const struct wb_move_host *host;
    struct wb_move_places places;
    int from_grave, to_grave;
};

static bool goes_on(uint64_t files, uint64_t bytes, void *data)
{
    const struct online *online = data;

    (void)files;
    (void)bytes;
    return !online->host->stop(online->host->data);
}

static int duplicate(int fd)
{
    int r = fcntl(fd, F_DUPFD_CLOEXEC, 3);

    return r < 0 ? -errno : r;
}

/* ---- before ------------------------------------------------------------------------------------ */

/*
 * Deleted files are to be where they can be renamed to. A store that leaves the tree for another device leaves its
 * directory to them.
 */
static int open_graves(struct online *online, struct wb_error *why)
{
    struct wb_moving *moving = &online->places.moving;
    int src_fd = online->places.src_fd, r;
    _cleanup_close_ int inside = openat(src_fd, WB_STORE_NAME, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);

    r = online->from_grave = duplicate(online->store->grave_fd);
    if (r >= 0)
        r = wb_store_dir_same_mount(src_fd, moving->to_fd);
    if (r >= 0) {
        bool stays = r == 0 && inside >= 0 && wb_move_same_dir(inside, moving->from_fd);

        r = online->to_grave = stays ? duplicate(inside) : wb_store_dir_grave(src_fd, moving->to_fd, true);
    }
    if (r >= 0)
        r = wb_store_dir_fill(online->to_grave);
    return r < 0 ? wb_error_set(why, r, "cannot keep deleted files of the tree: %s", g_strerror(-r)) : 0;
}

/* Until few files are left, or no fewer than before. */
static int copy_ahead(struct online *online, struct wb_error *why)
{
    struct wb_moving *moving = &online->places.moving;
    uint64_t files = UINT64_MAX, total = 0, bytes = 0;
    int r = 0;

    for (unsigned round = 0; r == 0 && round < ROUNDS_MAX; round++) {
        uint64_t before = files;

        moving->result->files = moving->result->bytes = moving->result->there = 0;
        r = wb_moving_copy(moving, why);
        files = moving->result->files;
        total += files;
        bytes += moving->result->bytes;
        if (files <= FEW || files >= before)
            break;
    }
    moving->result->files = total;
    moving->result->bytes = bytes;
    /* What has to be on the disk while all wait is there, as far as it can be. */
    if (r == 0 && syncfs(online->places.src_fd) < 0)
        errno = 0;
    return r;
}

static int prepare(struct online *online, struct wb_error *why)
{
    struct wb_moving *moving = &online->places.moving;
    int r = wb_move_check_readers(online->store, why);

    if (r == 0)
        r = wb_move_check_room(moving, why);
    if (r == 0)
        r = wb_move_announce(&online->places, why);
    if (r == 0) {
        wb_spans_begin_moving(online->store);
        r = open_graves(online, why);
        wb_spans_end_moving(online->store);
    }
    return r < 0 ? r : copy_ahead(online, why);
}

/* ---- the switch, with the store owned ---------------------------------------------------------- */

/* What is left, and the copy opened, which takes over the lock of the new place. */
static int make_copy(struct online *online, struct wb_store **ret, struct wb_error *why)
{
    struct wb_move_places *places = &online->places;
    struct wb_moving *moving = &places->moving;
    struct wb_store_place place;
    int r = wb_moving_copy(moving, why);

    if (r < 0)
        return r;
    r = wb_moving_copy_as(moving, WB_HEADER_NAME, WB_ARRIVING_NAME);
    if (r < 0)
        return wb_error_set(why, r, "cannot copy the store to %s: %s; it was not moved", moving->result->to,
                            g_strerror(-r));
    place = (struct wb_store_place){duplicate(moving->to_fd), duplicate(online->to_grave), places->to_lock};
    places->to_lock = -1;
    r = wb_store_open_copy(ret, online->store, &place, moving->result->to, why);
    if (r < 0 || place.dir_fd < 0 || place.grave_fd < 0) {
        *ret = r < 0 ? NULL : wb_store_abandon(*ret);
        return r < 0 ? r
                     : wb_error_set(why, -EMFILE, "too few file descriptors for the store in %s", moving->result->to);
    }
    return 0;
}

/* This makes the copy the store, and what was the store is in *copy. */
static int lead(struct online *online, struct wb_store *copy, struct wb_error *why)
{
    struct wb_moving *moving = &online->places.moving;
    int r = wb_move_lead(moving->from_fd, moving);

    if (r < 0)
        return wb_error_set(why, r, "cannot write to %s: %s", moving->result->from, g_strerror(-r));
    wb_store_exchange(online->store, copy);
    moving->result->moved = true;
    return 0;
}

static int lead_from_tree(struct online *online, struct wb_error *why)
{
    struct wb_move_places *places = &online->places;
    struct stat before;
    bool known = fstat(places->src_fd, &before) == 0;
    int r = wb_move_lead_from_tree(places);

    if (r < 0)
        return wb_error_set(why, r, "the store is in %s now, but its new place cannot be recorded in the tree: %s",
                            places->moving.result->to, g_strerror(-r));
    wb_move_remove_staging(places);
    /* The root keeps its times: nothing of the user's has changed. A courtesy only. */
    if (known && futimens(places->src_fd, (struct timespec[]){before.st_atim, before.st_mtim}) < 0)
        errno = 0;
    online->host->moved(online->host->data);
    return 0;
}

/* What fails here is done by the next mount: until then, what it concerns is refused. */
static int arrive(struct online *online, struct wb_error *why)
{
    const struct wb_moving *moving = &online->places.moving;
    int r = wb_store_arrive_from(online->from_grave, online->to_grave, moving->to_fd, moving->result->to, why);

    online->host->moved(online->host->data);
    return r < 0 ? r : lead_from_tree(online, why);
}

static int switch_over(struct online *online, struct wb_store **ret_old, struct wb_error *why)
{
    struct wb_store *copy = NULL;
    unsigned hold;
    int held = wb_store_hold_pins(online->store, &hold);
    int r = wb_move_check_readers(online->store, why);

    if (r == 0 && (r = wb_store_rest(online->store)) < 0)
        wb_error_set(why, r, "a failed change cannot be aborted because the store is full; free space first");
    if (r == 0)
        r = make_copy(online, &copy, why);
    if (r == 0)
        r = lead(online, copy, why);
    if (!online->places.moving.result->moved) {
        wb_store_abandon(copy);
        wb_store_wake(online->store);
    } else {
        *ret_old = copy;
        r = arrive(online, why);
    }
    /* Who waits for it, to read, looks where the store is then (wb_signpost_leads_away). */
    if (held == 0)
        wb_store_release_pins(*ret_old ? *ret_old : online->store, hold);
    return r;
}

/* ---- after ------------------------------------------------------------------------------------- */

/* The old place, by what the signpost says; but one in the tree may be covered. */
static int open_remains(struct online *online, const struct wb_signpost *here)
{
    int fd = openat(online->places.src_fd, WB_STORE_NAME, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    char path[4096];

    if (fd >= 0 && wb_move_path(fd, path) == 0 && strcmp(path, here->path) == 0)
        return fd;
    if (fd >= 0)
        close(fd);
    fd = open(here->path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    return fd < 0 ? -errno : fd;
}

static int clear_remains(struct online *online, struct wb_error *why)
{
    struct wb_moving *moving = &online->places.moving;
    struct wb_signpost here, there;
    _cleanup_close_ int old = -1;
    int r = wb_signpost_read(moving->to_fd, &here);

    if (r <= 0 || here.kind != WB_SIGNPOST_REMAINS)
        return r < 0 ? r : 0;
    r = old = open_remains(online, &here);
    if (r == -ENOENT)
        r = 0;
    /* Only where the signpost says so: anything else may be there by now. */
    if (old >= 0 && wb_signpost_read(old, &there) > 0 && there.kind == WB_SIGNPOST_LEADS &&
        memcmp(there.uuid, here.uuid, sizeof(here.uuid)) == 0)
        r = wb_moving_clear(old, wb_move_same_dir(old, online->store->grave_fd));
    if (r >= 0)
        r = wb_signpost_remove(moving->to_fd);
    return r < 0 ? wb_error_set(why, r, "the store is in %s now; its remaining files in %s cannot be removed: %s",
                                moving->result->to, here.path, g_strerror(-r))
                 : 0;
}

/* The graveyards of a move whose deleted files could not follow: the store has its new one. */
static int open_graves_again(struct online *online, const struct wb_signpost *coming, struct wb_error *why)
{
    int r = online->to_grave = duplicate(online->store->grave_fd);

    if (r >= 0)
        r = online->from_grave =
            coming->buried ? open_remains(online, coming) : wb_store_dir_staging(online->places.src_fd, false);
    /* There was none. */
    if (r == -ENOENT && !coming->buried)
        r = online->from_grave = duplicate(online->to_grave);
    return r < 0 ? wb_error_set(why, r, "cannot open the former place of the deleted files: %s", g_strerror(-r)) : 0;
}

/* The store is there, but its move may not be complete: *ret is what is left to do, or NULL. */
static int find_rest(struct online *online, int (**ret)(struct online *online, struct wb_error *why),
                     struct wb_error *why)
{
    const struct wb_moving *moving = &online->places.moving;
    struct wb_signpost here;
    int r = wb_signpost_read(moving->to_fd, &here);

    *ret = NULL;
    if (r < 0)
        return wb_error_set(why, r, "cannot read %s/%s: %s", moving->result->to, WB_SIGNPOST_NAME, g_strerror(-r));
    if (r > 0 && here.kind == WB_SIGNPOST_REMAINS) {
        *ret = lead_from_tree;
    } else if (r > 0 && here.kind == WB_SIGNPOST_COMING) {
        *ret = arrive;
        return open_graves_again(online, &here, why);
    }
    return 0;
}

static int move(struct online *online, const char *to, struct wb_error *why)
{
    struct wb_moving *moving = &online->places.moving;
    int (*finish)(struct online *online, struct wb_error *why) = NULL;
    struct wb_store *old = NULL;
    char inside[sizeof(WB_STORE_NAME) + 64];
    int r;

    snprintf(inside, sizeof(inside), "/proc/self/fd/%d/" WB_STORE_NAME, online->places.src_fd);
    r = moving->from_fd = duplicate(online->store->dir_fd);
    if (r >= 0)
        r = wb_move_path(moving->from_fd, moving->result->from);
    if (r < 0)
        return wb_error_set(why, r, "cannot determine the place of the store");
    memcpy(moving->coming.uuid, online->store->header.uuid, sizeof(moving->coming.uuid));
    wb_spans_begin_moving(online->store);
    r = wb_move_open_to(&online->places, to ? to : inside, why);
    wb_spans_end_moving(online->store);
    if (r < 0)
        return r;
    moving->result->moved = wb_move_same_dir(moving->from_fd, moving->to_fd);
    r = moving->result->moved ? find_rest(online, &finish, why) : prepare(online, why);
    if (r < 0 || (moving->result->moved && !finish))
        return r;
    if (!online->host->own(online->host->data))
        return wb_error_set(why, -EAGAIN, "changes in progress in the mount did not end; try again later");
    wb_spans_begin_moving(online->store);
    r = finish ? finish(online, why) : switch_over(online, &old, why);
    wb_spans_end_moving(online->store);
    online->host->release(online->host->data);
    wb_store_abandon(old);
    return r == 0 ? clear_remains(online, why) : r;
}

int wb_store_move_check(const struct wb_store *store, struct wb_error *why)
{
    return wb_move_check_readers(store, why);
}

int wb_store_move_online(struct wb_store *store, const struct wb_move_host *host, const char *to,
                         struct wb_move_result *ret, struct wb_error *why)
{
    struct online online = {
        .store = store, .host = host, .from_grave = -1, .to_grave = -1,
        .places = {.src_fd = store->src_fd, .from_lock = -1, .to_lock = -1,
                   .moving = {.from_fd = -1, .to_fd = -1, .result = ret, .progress = goes_on, .data = &online}},
    };
    int r;

    *ret = (struct wb_move_result){.moved = false};
    r = move(&online, to, why);
    wb_close_fd(&online.places.to_lock);
    wb_close_fd(&online.places.moving.to_fd);
    wb_close_fd(&online.places.moving.from_fd);
    wb_close_fd(&online.from_grave);
    wb_close_fd(&online.to_grave);
    return r;
}
