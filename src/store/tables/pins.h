/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

/*
 * Moments that other processes show. A process that reads the store beside the one that writes it (a mount of a moment,
 * a mount with -o ro) has returned a state to the kernel, and that state must never change: so the process pins it, and
 * no version that shows then is thinned out.
 *
 * A pin is a shared lock (fcntl(2), F_OFD_SETLK) on the directory of the store, on the byte whose number is the moment:
 * nothing is written, and the kernel releases it when its process ends. A process that thins holds a lock on one of the
 * lowest bytes from before it queries the pins until the new log is in place; a process that pins waits until the locks
 * that were held then are released, since their owners may not have seen its pin.
 */

#include "store/store.h"
#include <glib.h>

/* For as long as the store is open. 0, or -EBUSY after half a minute. */
int wb_store_pin(struct wb_store *store, int64_t when);
int wb_store_pin_all(struct wb_store *store);

/* All moments, until the descriptor is closed that is returned; or -errno. */
int wb_store_pin_briefly(struct wb_store *store);

/* Pins are seen from now on, until it is released. 0 and *ret_hold, or -errno: nothing may be thinned. */
int wb_store_hold_pins(struct wb_store *store, unsigned *ret_hold);
void wb_store_release_pins(struct wb_store *store, unsigned hold);

/* What others pin: moments (int64_t), unsorted. 0; -EBUSY: some pin everything; or -errno. */
int wb_store_pinned(const struct wb_store *store, GArray *moments);
