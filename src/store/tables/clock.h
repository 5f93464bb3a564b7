/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

/*
 * That the wall clock is doubted (policy/clock.h), for the next mount: changes that are recorded meanwhile have its
 * time, so that the newest of them does not show any more how late it was.
 */

#include "store/store.h"

/* How late it was; 0: nothing is noted, or cannot be read. *ret_insisted: for how long it has been doubted. */
int64_t wb_store_clock_noted(const struct wb_store *store, int64_t *ret_insisted);
/* `known`: how late it was; 0: the wall clock is believed. 0 or -errno. */
int wb_store_note_clock(const struct wb_store *store, int64_t known, int64_t insisted);
