/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

/*
 * Refuses mounts that would damage the running system, hide files, or record one tree twice. All checks come before
 * anything is created. Each returns 0, or -errno with a line in `why` that ends with what to do.
 */

#include "daemon/core/session.h"
#include "wayback/error.h"

/* SRC and MNT are resolved: neither may be a directory that the running system needs. */
int wb_traps_check_system(const struct wb_session *session, struct wb_error *why);

/* SRC is open: MNT must be empty (or SRC itself), and SRC must not be a mount, nor a part of another tree. */
int wb_traps_check_tree(const struct wb_session *session, struct wb_error *why);
