/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

/*
 * A store that is moved while it is open (relocate/move_online.c). The copy at the new place is opened as a second
 * store before it becomes the store: everything that can fail is done by then. After that the two exchange their open
 * files, so the struct to which all pointers refer is at the new place at once, and has no descriptor of the old one.
 *
 * The caller must have exclusive use of the store: no other thread of this process reads or writes it meanwhile.
 * `moves` notifies code that keeps its own references.
 */

#include "store/store.h"

/*
 * Finishes work in progress, so that a copy needs no recovery: clones made ahead, gaps, the timeline. 0, or -EBUSY: a
 * change is under way, or failed and could not be withdrawn. In either case call wake if the store continues at its
 * present place.
 */
int wb_store_rest(struct wb_store *store);
void wb_store_wake(struct wb_store *store);

/* The place of the copy; its descriptors, which the callee owns in any case. */
struct wb_store_place {
    int dir_fd, grave_fd, lock_fd;
};

/*
 * Opens the complete copy of a store at rest, in which only the header may still be missing; `home`: its name in
 * messages. 0, or -errno with a line in `why`.
 */
int wb_store_open_copy(struct wb_store **ret, const struct wb_store *store, const struct wb_store_place *place,
                       const char *home, struct wb_error *why);

/* From now on `store` is at the place of `copy`, and the other way round. Cannot fail. */
void wb_store_exchange(struct wb_store *store, struct wb_store *copy);

/* Releases a store that was replaced, or a copy that is not the store yet, without writing to it. Returns NULL. */
struct wb_store *wb_store_abandon(struct wb_store *store);
