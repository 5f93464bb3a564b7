/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * onfull=prune: the store is full, and somebody waits for that to end. What may go for want of room goes as with
 * max-size and reserve, only by what is lacking now.
 *
 * What is left of a log is written beside it before it goes, which takes room as well; and there is none. So some is
 * held in reserve for that, by a file without a name, which goes with the daemon; and room is made for the note that
 * has to be written before a log is changed in its place.
 */
#include "daemon/keeper/keeper_parts.h"

#include "daemon/system/report.h"
#include "maintain/usage/room.h"
#include "wayback/when.h"
#include <errno.h>
#include <fcntl.h>
#include <glib.h>
#include <unistd.h>

/* Of a device, so much goes at once: those who come next should not have to wait as well. */
#define PART 256
#define WANTED_LEAST (2u << 20)
#define WANTED_MOST (1u << 30)
#define HELD_PART 16
#define HELD_LEAST (1u << 20)
#define HELD_MOST (256u << 20)
#define MORE_LEAST 4096
/* By estimates: after so many horizons, nothing more is expected. */
#define ATTEMPTS 16
#define WARN_AGAIN_US (3600 * (int64_t)G_USEC_PER_SEC)

struct device {
    uint64_t size, free;
};

static int look_at_device(const struct wb_keeper *keeper, struct device *ret)
{
    struct statvfs device;

    if (fstatvfs(keeper->session->store->dir_fd, &device) < 0)
        return -errno;
    ret->size = (uint64_t)device.f_blocks * device.f_frsize;
    /* What is kept back for root is ours only if we are: those who are refused got to the end of it. */
    ret->free = (uint64_t)(geteuid() == 0 ? device.f_bfree : device.f_bavail) * device.f_frsize;
    return 0;
}

/* ---- what is held ---------------------------------------------------------------------------- */

static void let_go(struct wb_keeper *keeper)
{
    if (keeper->held_fd >= 0)
        close(keeper->held_fd);
    keeper->held_fd = -1;
}

void wb_keeper_hold_room(struct wb_keeper *keeper)
{
    struct device device;
    uint64_t held;
    int fd;

    if (!keeper->session->options->prunes)
        return;
    (void)wb_log_mtime_prepare(keeper->session->store);
    if (keeper->held_fd >= 0 || look_at_device(keeper, &device) < 0)
        return;
    held = CLAMP(device.size / HELD_PART, HELD_LEAST, HELD_MOST);
    /* From what was just made free, not all. */
    if (device.free < 2 * held)
        return;
    fd = openat(keeper->session->store->dir_fd, ".", O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
    if (fd >= 0 && posix_fallocate(fd, 0, (off_t)held) == 0)
        keeper->held_fd = fd;
    else if (fd >= 0)
        close(fd);
}

void wb_keeper_hold_end(struct wb_keeper *keeper)
{
    let_go(keeper);
}

/* ---- what goes ------------------------------------------------------------------------------- */

static void warn_going(struct wb_keeper *keeper, int64_t horizon)
{
    int64_t now = g_get_monotonic_time();
    char text[WB_WHEN_TEXT_MAX];

    keeper->warned_refused = false;
    if (keeper->warned_going != 0 && now - keeper->warned_going < WARN_AGAIN_US)
        return;
    keeper->warned_going = now;
    wb_log_msg("%s: the store is full; deleting the history before %s, and later history as needed (onfull=prune)",
               keeper->session->source, wb_when_print(horizon, 0, text));
}

static void warn_refused(struct wb_keeper *keeper)
{
    if (!keeper->warned_refused)
        wb_log_msg("%s: the store is full, and all remaining history is protected by keep, keep-versions or a "
                   "snapshot%s",
                   keeper->session->source, keeper->has_policy ? "" : ", or wayback.conf could not be used");
    keeper->warned_refused = true;
}

static int gather(struct wb_keeper *keeper, const struct wb_keeper_plan *plan, struct wb_room_ages *ages)
{
    struct wb_session *session = keeper->session;

    *ages = (struct wb_room_ages){.now = plan->present};
    return wb_room_gather(session->store, wb_keeper_is_with_tree(session), wb_keeper_is_over, session, ages);
}

/* What a snapshot of a directory, or a section with a longer age, does not cover. As give_way. */
static int give_way_beyond(struct wb_keeper *keeper, const struct wb_keeper_state *state,
                           const struct wb_keeper_plan *plan)
{
    int r = plan->beyond > 0 ? wb_keeper_forget(keeper, state->begins, plan->beyond, true) : 0;

    return r < 0 ? r : plan->beyond > 0;
}

/* One horizon. 1: there may be another one; 0: nothing more may go; or -errno. What went by an earlier one is before
 * the beginning now, and does not count in `ages` any more: they are gathered anew where what does is too little. */
static int give_way(struct wb_keeper *keeper, const struct wb_snapshots *all, uint64_t wanted, bool first,
                    struct wb_room_ages *ages)
{
    struct wb_keeper_state state;
    struct wb_keeper_plan plan;
    int64_t horizon;
    uint64_t most;
    int r = 0;

    wb_keeper_plan(keeper, all, &state, &plan);
    if (plan.latest == 0)
        return give_way_beyond(keeper, &state, &plan);
    if (first || wb_room_between(ages, state.begins, plan.latest) < wanted)
        r = gather(keeper, &plan, ages);
    if (r < 0)
        return r;
    most = wb_room_between(ages, state.begins, plan.latest);
    /* These are estimates: should they be far too low, not everything may go for it. */
    horizon = wb_room_choose(ages, state.begins, plan.latest, MIN(wanted, most / 2 + MORE_LEAST));
    if (horizon == 0)
        return give_way_beyond(keeper, &state, &plan);
    warn_going(keeper, horizon);
    r = wb_keeper_forget(keeper, horizon, 0, true);
    /* Time goes on, and so does the latest moment that may go: with nothing in between, it is of no use. */
    return r < 0 ? r : most > 0;
}

static uint64_t room_at_once(const struct device *device)
{
    return CLAMP(device->size / PART, WANTED_LEAST, WANTED_MOST);
}

uint64_t wb_keeper_room_at_once(struct wb_session *session)
{
    struct device device;

    return session->keeper && look_at_device(session->keeper, &device) == 0 ? room_at_once(&device) : 0;
}

/* For a change that waits: whether anything went. And what that takes is held as long as there is
 * room. */
static bool keeper_give_way(struct wb_keeper *keeper)
{
    struct wb_snapshots *all __attribute__((cleanup(wb_snapshots_unrefp))) = NULL;
    g_autofree struct wb_room_ages *ages = g_try_new(struct wb_room_ages, 1);
    struct device before, now;
    uint64_t wanted;
    bool any = false;
    int r;

    if (!ages || !keeper->has_policy || look_at_device(keeper, &before) < 0 ||
        wb_snapshots_get(keeper->session->store, &all) < 0) {
        warn_refused(keeper);
        return false;
    }
    let_go(keeper);
    keeper->full = true;
    wanted = room_at_once(&before) + 2 * CLAMP(before.size / HELD_PART, HELD_LEAST, HELD_MOST);
    now = before;
    for (unsigned i = 0; i < ATTEMPTS && now.free < before.free + wanted; i++) {
        r = give_way(keeper, all, before.free + wanted - now.free, i == 0, ages);
        /* Of a snapshot made or a moment pinned since, the next look knows. */
        any |= r > 0 || r == -EEXIST;
        if (r == 0 && wb_keeper_take_snapshot(keeper, "onfull=prune") > 0) {
            all = wb_snapshots_unref(all);
            r = wb_snapshots_get(keeper->session->store, &all);
            any = true;
            if (r == 0)
                continue;
        }
        if (r <= 0 || look_at_device(keeper, &now) < 0)
            break;
    }
    keeper->full = false;
    wb_keeper_hold_room(keeper);
    /* Where that is for somebody who waits, the others are still to be answered. */
    if (!any && wb_keeper_pinned(keeper->session) == 0)
        warn_refused(keeper);
    return any;
}

/* ---- answering ------------------------------------------------------------------------------- */

void wb_keeper_answer(struct wb_keeper *keeper)
{
    struct wb_session_threads *threads = &keeper->session->threads;
    bool granted;

    for (struct wb_space_waiter *waiter = keeper->waiters; waiter; waiter = waiter->next)
        waiter->seen = waiter->state == WB_WAITER_WAITS;
    atomic_store(&keeper->pleaded, false);
    pthread_mutex_unlock(&threads->lock);
    wb_relocate_lock_shared(keeper->session);
    granted = keeper_give_way(keeper);
    wb_relocate_unlock(&keeper->session);
    pthread_mutex_lock(&threads->lock);
    /* An operation that asked meanwhile has not tried again yet: it does before more is deleted for it. */
    if (granted)
        wb_keeper_answer_waiters(keeper, true, WB_WAITER_GRANTED);
    else if (!wb_keeper_refuse_oldest_pin(keeper))
        wb_keeper_answer_waiters(keeper, false, WB_WAITER_REFUSED);
    atomic_store(&keeper->pleaded, wb_keeper_has_waiters(keeper));
    pthread_cond_broadcast(&threads->wake);
}
