/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

/*
 * Shares: how much of what is scarce each user holds, so that no user can take what others need.
 *
 * Of every kind there is an amount for all users together. A user gets more as long as what they hold is less than what
 * is left for everybody: one user alone gets half, and there is always something for the next one. Root, and the user
 * who runs the daemon, are not limited; a part is kept for them. What one thing shared by several users costs
 * counts for each of them. Thread-safe.
 */

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

enum wb_share_kind {
    WB_SHARE_FDS,     /* descriptors of what users have open; refused with -EMFILE */
    WB_SHARE_MEMORY,  /* bytes of listings that are open; refused with -ENOMEM. Who has none may have one of any size */
    WB_SHARE_KINDS,
};

struct wb_share_user;

struct wb_shares {
    pthread_mutex_t lock; /* nothing else is taken under it */
    struct wb_share_user *buckets[64];
    struct {
        uint64_t all, used;
    } kinds[WB_SHARE_KINDS];
};

/* Who holds one shared thing, each with the number of times. Zeroed at first. */
struct wb_holder;
struct wb_holders {
    struct wb_holder *first;
};

void wb_shares_init(struct wb_shares *shares);
void wb_shares_deinit(struct wb_shares *shares);

/* Whether `uid` could have that much more now: 0 or the error of the kind. Asked before what cannot be taken back. */
int wb_shares_room(struct wb_shares *shares, enum wb_share_kind kind, uid_t uid, uint64_t amount);

/* `uid` holds the thing once more; the first time costs `amount`. 0, the error of the kind, or -ENOMEM. `asked`: there
 * was room when wb_shares_room was asked, and it is not asked again. */
int wb_shares_hold(struct wb_shares *shares, struct wb_holders *holders, enum wb_share_kind kind, uid_t uid,
                   uint64_t amount, bool asked);

/* ... and once less. */
void wb_shares_release(struct wb_shares *shares, struct wb_holders *holders, enum wb_share_kind kind, uid_t uid,
                       uint64_t amount);
