/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

/*
 * What others changed in SRC while nothing was recorded. An object is marked (capture/unseen.h) when it is looked up,
 * before anybody sees it (core/entry.c); a thread of low priority looks at the rest of the tree after the mount, and
 * says in one line how many there were.
 */

#include "daemon/core/session.h"

/* Looks at the root, before the mount answers. */
void wb_survey_root(struct wb_session *session);

/* For a session that records. 0 or -errno. */
int wb_survey_start(struct wb_session *session);
void wb_survey_stop(struct wb_session *session);
