/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "daemon/past/past.h"

#include "daemon/past/past_perm.h"
#include "daemon/past/milestones.h"
#include "daemon/past/pages.h"
#include "daemon/past/past_access.h"
#include "daemon/past/past_buried.h"
#include "daemon/past/past_node.h"
#include "daemon/past/past_open.h"
#include "wayback/when.h"
#include <errno.h>
#include <glib.h>
#include <limits.h>

/* Look-backs of one user at a time, at least: two processors are busy with them then. Of all users: for memory. */
#define WB_LOOKS_MIN 2
#define WB_LOOKS_THREADS 64
/* The present does not wait for the past; but where nothing else is to be done, this costs nothing. */
#define WB_LOOKS_NICE 5
/* Requests that change something and may wait long, of one user at a time; of root, as many as there are. */
#define WB_CHANGES_PER_USER 16

int wb_past_init(struct wb_session *session)
{
    struct wb_past *past = g_try_new0(struct wb_past, 1);
    unsigned looks;

    if (!past)
        return -ENOMEM;
    past->buried = wb_buried_cache_new();
    past->milestones = wb_milestones_new();
    if (!past->buried || !past->milestones) {
        wb_buried_cache_free(past->buried);
        wb_milestones_free(past->milestones);
        g_free(past);
        return -ENOMEM;
    }
    pthread_mutex_init(&past->lock, NULL);
    wb_past_nodes_init(past);
    past->generation = 1;
    past->pinned = WB_WHEN_PRESENT;
    wb_control_pages_init(past);
    wb_past_contents_init(past);
    past->altered = g_array_new(FALSE, FALSE, sizeof(struct wb_object));
    g_queue_init(&past->perm);
    looks = MAX(WB_LOOKS_MIN, g_get_num_processors() / 2);
    wb_lane_init(&past->names, session, looks, WB_LOOKS_THREADS, WB_LOOKS_NICE);
    wb_lane_init(&past->looks, session, looks, WB_LOOKS_THREADS, WB_LOOKS_NICE);
    wb_lane_init(&past->changes, session, WB_CHANGES_PER_USER, UINT_MAX, 0);
    past->changes.root_is_free = true;
    session->past = past;
    return 0;
}

void wb_past_deinit(struct wb_session *session)
{
    struct wb_past *past = session->past;

    wb_lane_deinit(&past->names);
    wb_lane_deinit(&past->looks);
    wb_lane_deinit(&past->changes);
    wb_control_pages_drop(past);
    wb_past_perm_free_all(session);
    wb_past_nodes_free(session);
    wb_past_contents_deinit(past);
    g_array_unref(past->altered);
    wb_buried_cache_free(past->buried);
    wb_milestones_free(past->milestones);
    pthread_mutex_destroy(&past->lock);
    g_free(past);
    session->past = NULL;
}
