/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

/*
 * Moving the store that this very process has open, while its tree is in use: the same order as of any move
 * (wayback/move.h), but that the process goes on with the new place at once.
 */

#include "store/store.h"
#include "wayback/move.h"

struct wb_move_host {
    /* Nobody else is at the store in this process, from when it is true until release; false: it cannot be had now. */
    bool (*own)(void *data);
    void (*release)(void *data);
    /* While it is owned: the store is elsewhere now. */
    void (*moved)(void *data);
    /* No more is to be done than what has to be. */
    bool (*stop)(void *data);
    void *data;
};

/* Whether another process is in the way. 0, or -EBUSY with a line in `why`. */
int wb_store_move_check(const struct wb_store *store, struct wb_error *why);

/*
 * `to`: where it is to be, NULL: in the tree. 0, or a negative errno with a line in `why`, as of wb_store_move;
 * -EBUSY also where another process reads the store, -EAGAIN where it cannot be owned now. With ret->moved, it is
 * there, whatever is returned; else it is where it was. Where it is there already, what a move left in the old place
 * is removed.
 */
int wb_store_move_online(struct wb_store *store, const struct wb_move_host *host, const char *to,
                         struct wb_move_result *ret, struct wb_error *why);
