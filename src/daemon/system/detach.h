/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

/* Taking mounts away. */

#include <stdbool.h>

/* Detaches the mount at once; processes that still use it keep it until they are done. 0 or -errno. */
int wb_detach(const char *mountpoint);

/* Whether a mount of ours is there whose daemon has died. */
bool wb_detach_is_dead(const char *path);

/* A daemon that was killed leaves its mount behind, and every access fails: such a one, if it was of
 * ours, goes. Anything else stays as it is. */
void wb_detach_if_dead(const char *path);

/* The mount point of a mount of ours at `path` whose daemon has died, to be freed by the caller; or NULL. */
char *wb_detach_find_dead(const char *path);
