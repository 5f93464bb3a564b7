/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

/*
 * Where versions are in long lists that were walked before: the time of about every 1,024th, so that a request for a
 * page far back (VERSIONS with a late cursor, or `until`) does not read all newer versions again.
 *
 * A milestone has a position: versions are counted from one of them, older ones upward. Versions recorded since then
 * come before it and change no position, as long as history is not rewritten (wb_milestones_drop). Memory is bounded:
 * the list used longest ago is dropped first.
 */

#include "history/history.h"

struct wb_milestones; /* of all lists */

struct wb_milestones *wb_milestones_new(void);
struct wb_milestones *wb_milestones_free(struct wb_milestones *all);

/* History was rewritten: drops all lists, and ignores walks that began before. */
void wb_milestones_drop(struct wb_milestones *all);

/*
 * One walk along a list, from its newest version on. It is for one thread. `settled`: no change up to then is
 * under way any more; versions are counted from older ones only.
 */
struct wb_milestone_walk;

struct wb_milestone_walk *wb_milestone_walk_new(struct wb_milestones *all, struct wb_object dir, const char *name,
                                                int64_t settled);
struct wb_milestone_walk *wb_milestone_walk_free(struct wb_milestone_walk *walk);

/*
 * The walk has met a version of `object`, with `when` and `change` as in struct wb_version; wb_versions_is_plain.
 * `mark`: as wb_versions_mark returned it then. Versions that do not count (`save` 0) are passed over.
 */
void wb_milestone_walk_met(struct wb_milestone_walk *walk, struct wb_object object, const struct wb_version *version,
                           const struct wb_save_mark *mark);

/*
 * The last known version after number `at` that is not after number `until` and is later than `later`. False: none is
 * known, or the walk has met none yet by which it knows its place.
 */
bool wb_milestone_walk_leap(struct wb_milestone_walk *walk, uint32_t at, uint32_t until, int64_t later,
                            int64_t *ret_when, uint32_t *ret_change, struct wb_save_mark *ret_mark);
