/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

/*
 * The thread that makes and deletes automatic snapshots: it carries out what policy/schedule.h decides, and
 * keeps an eye on wayback.conf. It wakes every few seconds, and at the beginning of a slot.
 */

#include "daemon/core/session.h"

/* For a recording session; 0 or -errno. */
int wb_schedule_start(struct wb_session *session);
void wb_schedule_stop(struct wb_session *session);

/* wayback.conf is read anew at once (SIGHUP). */
void wb_schedule_reload(struct wb_session *session);
