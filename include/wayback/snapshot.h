/* SPDX-License-Identifier: LGPL-2.1-or-later */
#ifndef WAYBACK_SNAPSHOT_H
#define WAYBACK_SNAPSHOT_H

#include "wayback/error.h"

/* Names of snapshots. <wayback/control.h> has the requests that create and list snapshots. */

/* The longest name, since DIR/@NAME is one entry of DIR; and the longest description. In bytes. */
#define WB_SNAPSHOT_NAME_MAX 254
#define WB_SNAPSHOT_TEXT_BYTES 1024

/*
 * Checks the name of a snapshot: 1 to 254 bytes, valid UTF-8 without control characters, '/' and '@'; it must not begin
 * with '-', '.' or '~', must not begin or end with a blank, and must not be readable as a time. Returns 0, or -EINVAL
 * with a line in `why`. Thread-safe.
 */
int wb_snapshot_name_check(const char *name, struct wb_error *why);

#endif
