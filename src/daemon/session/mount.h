/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

/* Mounting, serving, and leaving in good order. */

#include "daemon/core/session.h"

/* What would keep the mount from being made; asked before anything is touched. 0 or -errno. */
int wb_mount_check(const struct wb_options *options, struct wb_error *why);

/* Mounts; nothing is answered before wb_serve. 0, or -errno with a line in `why`. */
int wb_mount(struct wb_session *session, struct wb_error *why);

/* Serves until the file system is unmounted or a signal asks to go: then it unmounts. 0 or -errno. */
int wb_serve(struct wb_session *session);

/* The mount is gone and libfuse's session freed, whatever happened before. */
void wb_unmount(struct wb_session *session);

/* Whether MNT is answered by a FUSE daemon: 0 or -errno. Waits for the first answer. */
int wb_mount_answers(const char *mountpoint);
