/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

/*
 * The paths of a mount that may differ between two moments, from the list of all changes: what compares a tree visits
 * them, and nothing else, so that it costs by the number of changes and not by the size of the tree.
 *
 * Names that came, went or moved count with everything below them, at both ends of a move. So a path that is not in
 * the list has had the same object all the time, and neither that nor anything below it was changed.
 */

#include <stdbool.h>
#include <stdint.h>
#include "client/revert/revert.h"

struct wb_changed;

/* No path yet; then paths are added: with `whole`, everything below it may differ. "" or ".": the root. */
struct wb_changed *wb_changed_new(void);
void wb_changed_add(struct wb_changed *changed, const char *path, bool whole);
void wb_changed_add_all(struct wb_changed *changed, const struct wb_changed *others);

/* ITSELF: `path` was added, or everything below a path above it. `changed`: a struct wb_changed. */
enum revert_extent wb_changed_extent(const void *changed, const char *path);

/* Calls `each` for every path that was added, until it returns true; then that is returned. */
bool wb_changed_each(const struct wb_changed *changed, bool (*each)(void *data, const char *path), void *data);

/* The deepest path at or above all that were added; g_free. */
char *wb_changed_top(const struct wb_changed *changed);

/*
 * The changes after `since` up to `until` (WB_WHEN_PRESENT: the present) in the whole mount of `root_fd`. 0; 1 and NULL
 * if the list may be incomplete, or is so long that it is of no use (has more than `most` changes): then every path may
 * differ. Or -errno.
 */
#define WB_CHANGES_MOST 200000
int wb_changed_collect(int root_fd, int64_t since, int64_t until, unsigned most, struct wb_changed **ret);

/*
 * For a caller that makes the tree equal: which part of directory `path` (relative to `root_fd`) may differ from its
 * state at `since`. The list may lack changes that were made outside of the mount and that the daemon has not met yet,
 * so all present entries are looked at, too: one that was changed later counts, as does another file system that is
 * mounted there. 0; 1 and NULL if every path may differ; or -errno.
 */
int wb_changed_since(int root_fd, const char *path, int64_t since, struct wb_changed **ret);

/* For struct revert_request: a directory with such a path below it is concerned itself: its times changed. */
enum revert_extent wb_changed_extent_of_names(const void *changed, const char *path);
struct wb_changed *wb_changed_free(struct wb_changed *changed);

/* Whether `path` (relative to the root, "" for that itself), or something below it, may differ. NULL: yes. */
bool wb_changed_has(const struct wb_changed *changed, const char *path);

static inline void wb_changed_freep(struct wb_changed **changed)
{
    wb_changed_free(*changed);
}
#define _cleanup_changed_ __attribute__((cleanup(wb_changed_freep)))
