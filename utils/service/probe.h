/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

/*
 * Tests a mount by its use: a small file is written and changed, read as of before the change, and removed with its
 * history, so that no trace of it remains.
 */

#include "client/mount.h"

/* 0, or WB_EXIT_FAILED after an error line. */
int wb_probe(const struct wb_mount *mount, const char *directory);
