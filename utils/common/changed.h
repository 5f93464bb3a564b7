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
 * if the list may be incomplete, or is so long that it is of no use: then every path may differ. Or -errno.
 */
int wb_changed_collect(int root_fd, int64_t since, int64_t until, struct wb_changed **ret);
struct wb_changed *wb_changed_free(struct wb_changed *changed);

/* Whether `path` (relative to the root, "" for that itself), or something below it, may differ. NULL: yes. */
bool wb_changed_has(const struct wb_changed *changed, const char *path);

static inline void wb_changed_freep(struct wb_changed **changed)
{
    wb_changed_free(*changed);
}
#define _cleanup_changed_ __attribute__((cleanup(wb_changed_freep)))
