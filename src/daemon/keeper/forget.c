/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "daemon/keeper/forget.h"

#include "daemon/past/past_perm.h"
#include "daemon/past/pages.h"
#include "daemon/past/past.h"
#include "daemon/past/past_node.h"

/* Who asks for the tree makes all others wait behind him until the last change under way is over. So it is tried first
 * whether it can be had at once: for a second, in steps of a millisecond. */
#define TRIES 1000

static void own(void *data)
{
    struct wb_session *session = data;

    for (unsigned i = 0; i < TRIES; i++) {
        if (wb_ns_try_write_lock(session))
            return;
        g_usleep(1000);
    }
    wb_ns_write_lock(session);
}

static void release(void *data)
{
    wb_ns_unlock(data);
}

void wb_forget_init(struct wb_session *session, struct wb_prune_options *options)
{
    *options = (struct wb_prune_options){
        .slack = WB_PRUNE_SLACK, .own = own, .release = release, .in_use = wb_compact_in_use, .data = session};
}

/* ---- thinning -------------------------------------------------------------------------------- */

static void own_for_thinning(void *data)
{
    own(((struct wb_thin_driver *)data)->session);
}

static void release_after_thinning(void *data)
{
    release(((struct wb_thin_driver *)data)->session);
}

static void begin_file(void *data, struct wb_object object)
{
    wb_past_alter_begin(((struct wb_thin_driver *)data)->session, object);
}

static void end_file(void *data, struct wb_object object)
{
    wb_past_alter_end(((struct wb_thin_driver *)data)->session, object);
}

static bool is_in_use(void *data, struct wb_object object)
{
    return wb_compact_in_use(((struct wb_thin_driver *)data)->session, object);
}

void wb_forget_init_thin(struct wb_thin_driver *driver, struct wb_thin_options *options)
{
    *options = (struct wb_thin_options){.own = own_for_thinning, .release = release_after_thinning,
                                        .begin = begin_file, .end = end_file, .in_use = is_in_use,
                                        .data = driver};
}

/* ---- both ------------------------------------------------------------------------------------ */

void wb_forget_published(struct wb_session *session)
{
    wb_control_pages_drop(session->past);
    wb_past_perm_free_all(session);
    wb_past_renew(session);
}
