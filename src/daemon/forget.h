/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

/* Pruning beside the operations of the mount: what whoever drives it (control_prune.c, keeper.c) has in common. */

#include "daemon/session.h"
#include "keep/prune.h"

/* Fills what is asked of the session; the rest, `stop` among it, is the caller's. */
void wb_forget_init(struct wb_session *session, struct wb_prune_options *options);

/* The horizon was published: older states are not told any more, by nobody who knows them already. */
void wb_forget_published(struct wb_session *session);
