/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

/*
 * A store that changes place while it is open (relocate/move_online.c). The copy is opened in the new place as a second
 * store, before it is the store: all that can fail happens by then. After that the two exchange what they have open; so
 * the struct that everybody points to is at the new place at once, and not one descriptor of the old one is left in it.
 *
 * All of this is for who has the store for himself: nobody else reads or writes it in this process meanwhile. What
 * others keep beside it is told by `moves`.
 */

#include "store/store.h"

/*
 * Brings to an end what can be, so that a copy needs no recovery: clones made ahead, gaps, the timeline. 0, or -EBUSY:
 * a change is under way, or failed and could not be withdrawn. Whether or not, wake when it goes on where it is.
 */
int wb_store_rest(struct wb_store *store);
void wb_store_wake(struct wb_store *store);

/* Where the copy is; its descriptors, which it takes over in any case. */
struct wb_store_place {
    int dir_fd, grave_fd, lock_fd;
};

/*
 * The whole copy of a store that rests, of which only the header need not be there yet; `home`: what messages call it.
 * 0, or -errno with a line in `why`.
 */
int wb_store_open_copy(struct wb_store **ret, const struct wb_store *store, const struct wb_store_place *place,
                       const char *home, struct wb_problem *why);

/* `store` is where `copy` was from now on, and the other way round. Cannot fail. */
void wb_store_exchange(struct wb_store *store, struct wb_store *copy);

/* Lets go of what is the store no more, or is not yet, without writing to it. Returns NULL. */
struct wb_store *wb_store_abandon(struct wb_store *store);
