/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

/*
 * Times on the command line, which may be the name of a snapshot.
 */

#include <glib.h>
#include "client/snapshots.h"
#include "common/mount.h"
#include "wayback/snapshot.h"
#include "wayback/when.h"

/*
 * Before any mount is known: whether `text` is a time or may be the name of a snapshot. 0, or WB_EXIT_USAGE after
 * saying why not.
 */
int wb_time_check(const char *option, const char *text);

/* TIME without the mark that it may begin with, '@' or that of the mount. */
const char *wb_time_text(const struct wb_place *place, const char *text);

/*
 * What `text` means for `place`: a time, else the moment of the snapshot of that name in the mount, if it says anything
 * of the place, else a time as people say it (wb_time_parse_free). 0, or WB_EXIT_USAGE after saying why not.
 */
int wb_time_of(const struct wb_place *place, const char *option, const char *text, struct wb_time *ret);

/* 0, or WB_EXIT_USAGE after saying that `when`, which `text` means, is in the future. `place`: NULL: not known. */
int wb_time_not_future(const struct wb_place *place, const char *option, const char *text, int64_t when);

/*
 * The instants that --since and --until mean for `place`, 0 for one that is not given (NULL). `place` NULL: none is
 * known yet; then this looks whether they can be instants. `limit`: the option to use for a number of changes. 0, or
 * an exit status after saying why not; also if no change can be in that range.
 */
int wb_time_range(const struct wb_place *place, const char *since_text, const char *until_text, const char *limit,
                  int64_t *ret_since, int64_t *ret_until);

/*
 * The past moment that an option means. First with `place` NULL, before any mount is known: *ret is the moment, or 0
 * where the mount has to say, since `text` may be the name of a snapshot. Then for each place: a moment that is known
 * already stays the same for all of them. 0, or WB_EXIT_USAGE after saying why not.
 */
int wb_time_past(const struct wb_place *place, const char *option, const char *text, int64_t *ret);

/* Up to five names that resemble `name`, "a, b, c", or NULL; g_free. `snapshots`: of wb_request_snapshot_list. */
char *wb_snapshot_similar(const GPtrArray *snapshots, const char *name);
