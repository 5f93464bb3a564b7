/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

/*
 * Room: how much the history takes, how much of that a later horizon (prune.h) would give back, and the least
 * forgetting that gives back enough. Nothing is locked: beside a daemon that goes on, what changes counts as it was
 * met.
 */

#include "policy/policy.h"
#include "store/store.h"
#include <sys/statvfs.h>

/*
 * Bytes by age, in classes whose width is a 32nd of the age: at the age of a month, a day. So a horizon
 * that is chosen by them is at most that much later than the best one.
 */
#define WB_ROOM_PARTS 32u
#define WB_ROOM_CLASSES (64u * WB_ROOM_PARTS)
struct wb_room_ages {
    int64_t now;
    uint64_t bytes[WB_ROOM_CLASSES];
};

void wb_room_add(struct wb_room_ages *ages, int64_t when, uint64_t bytes);

/* The bytes of changes later than `since` and earlier than `until`. */
uint64_t wb_room_between(const struct wb_room_ages *ages, int64_t since, int64_t until);

/*
 * The earliest horizon that frees `wanted` bytes; `latest` if no permitted one does. History up to `begins` was pruned
 * before, and frees nothing. 0: there is nothing between the two.
 */
int64_t wb_room_choose(const struct wb_room_ages *ages, int64_t begins, int64_t latest, uint64_t wanted);

/* What a setting means on a device: bytes; 0: not said. */
uint64_t wb_room_bytes(const struct wb_room *room, const struct statvfs *device);

/* Bytes of the blocks that the store takes, without those shared with other files. 0 or -errno; -ECANCELED. */
int wb_room_measure(struct wb_store *store, bool (*stop)(void *data), void *data, uint64_t *ret);

/*
 * The bytes that pruning would free, by the age of the changes. `bodies`: deleted files, too (they may be on another
 * device). `ages` begins with its `now`.
 */
int wb_room_gather(struct wb_store *store, bool bodies, bool (*stop)(void *data), void *data,
                   struct wb_room_ages *ages);
