/* SPDX-License-Identifier: LGPL-2.1-or-later */
#ifndef WAYBACK_SNAPSHOT_H
#define WAYBACK_SNAPSHOT_H

#include "wayback/error.h"

/* Snapshots: moments with names. They are made and listed through <wayback/control.h>. */

/* The longest name: DIR/@NAME is one entry of DIR. The longest text that is said of one. In bytes. */
#define WB_SNAPSHOT_NAME_MAX 254
#define WB_SNAPSHOT_TEXT_BYTES 1024

/*
 * Whether a snapshot may be called that: 1 to 254 bytes, valid UTF-8 without control characters, no '/',
 * no '@', no '-' or '.' or '~' to begin with, no blank at either end, and nothing that reads as a
 * time. 0 or -EINVAL with a line in `why`. Thread-safe.
 */
int wb_snapshot_name_check(const char *name, struct wb_problem *why);

#endif
