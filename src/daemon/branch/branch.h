/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

/*
 * Branches (-o branch=DIR): a moment that can be changed. The kernel's overlayfs shows the moment
 * (lower layer, read-only) with what was changed (upper layer, DIR/upper) on top; the
 * upper layer is in a live mount of DIR, so the changes have a history of their own. The tree that was
 * branched off is not touched.
 */

#include "daemon/options/options.h"
#include <stdbool.h>

/* Whether the directory holds a branch. */
bool wb_branch_is_one(const char *dir);

/* Mounts options->branch over the moment options->at of options->source. The exit status. */
int wb_branch_mount(const struct wb_options *options);

/* -o at= of a directory that is a branch: the branch as it was then, read-only. The exit status. */
int wb_branch_view(const struct wb_options *options);
