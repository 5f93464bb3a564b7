/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

/*
 * Pruning and thinning beside the operations of the mount: what those who drive them (control_prune.c, control_thin.c,
 * keeper.c) have in common.
 */

#include "daemon/core/session.h"
#include "maintain/prune/prune.h"
#include "maintain/thin/thin_store.h"

/* Fills what is asked of the session; the rest, `stop` among it, is the caller's. */
void wb_forget_init(struct wb_session *session, struct wb_prune_options *options);

/* The same of thinning, for which `data` has to be one of these, or begin with one. */
struct wb_thin_driver {
    struct wb_session *session;
};
void wb_forget_init_thin(struct wb_thin_driver *driver, struct wb_thin_options *options);

/* After the horizon was published: drops older states from all caches, so that they are not returned any more. */
void wb_forget_published(struct wb_session *session);
