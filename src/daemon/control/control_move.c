/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Relocates the store while the tree is in use (relocate/move_online.h). Every request and every thread of the session
 * holds relocate_lock shared while it uses the store. So the switch takes it exclusively, and drops every cache that
 * knows the old place.
 */
#include "daemon/control/control.h"

#include "daemon/keeper/keeper.h"
#include "daemon/past/pages.h"
#include "daemon/past/past.h"
#include "daemon/past/past_node.h"
#include "daemon/system/report.h"
#include "maintain/prune/prune.h"
#include "maintain/relocate/move_online.h"
#include "wayback/when.h"
#include <errno.h>
#include <fcntl.h>
#include <glib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <time.h>
#include <unistd.h>

_Static_assert(sizeof(struct wb_control_moved) <= WB_CONTROL_DATA_MAX, "a reply fits");

/*
 * A thread that waits for the exclusive lock makes all others wait. An operation under way may itself wait for one of
 * those (a request that makes the kernel forget something; one that waits for the keeper to free space), or take long.
 * So the attempt ends soon, the others continue for as long, and the lock is tried again.
 */
#define TRIES 12
#define PATIENCE (WB_WHEN_SECOND / 2)

struct moving {
    const struct wb_request *request;
    int64_t owned, pause; /* ns, monotonic: since when it waits for the lock, or has it; for how long it did */
};

static int64_t now(void)
{
    return g_get_monotonic_time() * 1000;
}

static bool stop(void *data)
{
    const struct moving *moving = data;

    return wb_control_is_over((void *)(uintptr_t)moving->request);
}

static bool take_relocate_lock(struct moving *moving)
{
    struct wb_session *session = moving->request->session;
    struct timespec until;

    for (unsigned i = 0; i < TRIES && !stop(moving); i++) {
        moving->owned = now();
        clock_gettime(CLOCK_MONOTONIC, &until);
        until.tv_nsec += PATIENCE;
        until.tv_sec += until.tv_nsec / WB_WHEN_SECOND;
        until.tv_nsec %= WB_WHEN_SECOND;
        if (pthread_rwlock_clockwrlock(&session->relocate_lock, CLOCK_MONOTONIC, &until) == 0)
            return true;
        g_usleep(PATIENCE / 1000);
    }
    return false;
}

static bool own(void *data)
{
    struct moving *moving = data;
    struct wb_session *session = moving->request->session;
    bool taken;

    atomic_store(&session->relocate_wanted, true);
    taken = take_relocate_lock(moving);
    atomic_store(&session->relocate_wanted, false);
    if (!taken)
        return false;
    /* What goes on from one request to the next is begun anew; nobody is at it, since prune_lock is held. */
    session->prune = wb_prune_free(session->prune);
    wb_control_thin_drop(session);
    wb_control_pages_drop(session->past);
    wb_keeper_leave_place(session);
    return true;
}

static void release(void *data)
{
    struct moving *moving = data;

    moving->pause = now() - moving->owned;
    pthread_rwlock_unlock(&moving->request->session->relocate_lock);
}

static void moved(void *data)
{
    wb_session_note_place(((struct moving *)data)->request->session);
}

/* A place that only this mount, or another one, leads to is none: the store would be reached through itself. */
static bool is_in_mount(const char *path)
{
    g_autofree struct wb_control *hello = g_new0(struct wb_control, 1);
    g_autofree char *parent = g_path_get_dirname(path);
    int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    bool is;

    if (fd < 0)
        fd = open(parent, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0)
        return false;
    hello->version = WB_CONTROL_VERSION;
    hello->command = WB_CONTROL_HELLO;
    is = ioctl(fd, WB_CONTROL_IOCTL, hello) == 0;
    close(fd);
    return is;
}

static int move(const struct wb_request *request, struct wb_control_moved *reply, struct wb_error *why)
{
    struct wb_session *session = request->session;
    struct moving moving = {.request = request};
    struct wb_move_host host = {own, release, moved, stop, &moving};
    g_autofree struct wb_move_result *result = g_new0(struct wb_move_result, 1);
    const char *to = request->in->source;
    int r;

    if (session->options->landlock)
        return wb_error_set(why, -EPERM,
                            "the daemon cannot open other directories (mount option landlock); unmount "
                            "%s to move its store",
                            session->mountpoint);
    if (request->in->flags & WB_CONTROL_MOVE_CHECK)
        return wb_store_move_check(session->store, why);
    if (*to && is_in_mount(to))
        return wb_error_set(why, -EINVAL, "%s is in a Wayback mount; choose a directory outside", to);
    r = wb_store_move_online(session->store, &host, *to ? to : NULL, result, why);
    reply->files = result->files;
    reply->bytes = result->bytes;
    reply->moved = result->moved;
    reply->pause = moving.pause;
    return r;
}

int wb_control_move(const struct wb_request *request, struct wb_control *out)
{
    struct wb_control_moved *reply = (struct wb_control_moved *)(void *)out->data;
    struct wb_session *session = request->session;
    struct wb_error why = {""};
    int r;

    if (*request->in->source && *request->in->source != '/')
        return -EINVAL;
    if (pthread_mutex_trylock(&session->prune_lock) != 0)
        return -EBUSY;
    r = move(request, reply, &why);
    pthread_mutex_unlock(&session->prune_lock);
    reply->error = (uint32_t)-r;
    if (r < 0)
        g_strlcpy(reply->text, *why.text ? why.text : g_strerror(-r), sizeof(reply->text));
    if (r < 0 && reply->moved)
        wb_log_msg("%s: %s", session->source, reply->text);
    return 0;
}
