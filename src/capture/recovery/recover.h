/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

/*
 * After a crash: the changes still announced in `inflight` are compared with the tree. One whose
 * before-state is still there untouched never happened and gets its ABORT; one that happened, or
 * half happened, stays a version. Nothing else is looked at, so this is O(slots).
 * Called by the process that opened the store for writing, before the first change.
 */

#include "store/store.h"

int wb_recover(struct wb_store *store, unsigned *ret_aborted);
