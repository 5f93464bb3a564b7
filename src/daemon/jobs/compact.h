/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

/*
 * The thread that packs what rests: a folder of the store now and then, at the lowest priority for processor
 * and disk. What wayback.conf says of it comes from the thread that reads it.
 */

#include "daemon/core/session.h"
#include "policy/config.h"

/* For a recording session; 0 or -errno. */
int wb_compact_start(struct wb_session *session);
void wb_compact_stop(struct wb_session *session);

/* From now on this holds, and so much is to stay free of the device. Takes what is in *compaction. */
void wb_compact_set(struct wb_session *session, struct wb_compaction *compaction, const struct wb_room *reserve);
