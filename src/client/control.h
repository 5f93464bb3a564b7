/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

/*
 * The requests of <wayback/control.h> as functions. Every path is relative to `dir_fd`, "" for
 * the directory itself. All return 0 or a negative errno unless said otherwise.
 */

#include <stdbool.h>
#include "wayback/control.h"

/* No list that is held as a whole takes more bytes: the caller gets -EOVERFLOW if a broken daemon sends more. */
#define WB_HELD_MAX (UINT64_C(1) << 30)

/*
 * For requests of other files here: makes one ready, and sends it off. The reply is in the same memory, and is what
 * wb_control_check takes for one (-EPROTO).
 */
int wb_request_prepare(struct wb_control *request, enum wb_control_command command, const char *path);
int wb_request_call(int dir_fd, struct wb_control *request);

int wb_request_hello(int dir_fd, struct wb_control_hello *ret);
int wb_request_identify(int dir_fd, const char *path, struct wb_control_identity *ret);
int wb_request_restore(int dir_fd, const char *path, const char *source);
/* `before`: only what it was before that moment; 0: all. */
int wb_request_erase(int dir_fd, const char *path, unsigned flags, int64_t before, struct wb_control_erased *ret);
/* -EINVAL: the daemon is too old to measure it. */
int wb_request_erase_measure(int dir_fd, const char *path, unsigned flags, struct wb_control_freed *ret);
/*
 * Several names in one pass over the store: asked for first, and then for all of them. The reply has as many items as
 * there were names, in their order.
 */
struct wb_erase_batch;
struct wb_erase_batch *wb_erase_batch_new(int dir_fd);
struct wb_erase_batch *wb_erase_batch_free(struct wb_erase_batch *batch);
/* False: it has no room for it; carry out what there is, and begin another one. */
bool wb_erase_batch_add(struct wb_erase_batch *batch, const char *path, unsigned flags);
/* 0 or -errno: of all; -EINVAL, -ENOTTY: nothing was done, the daemon does not know how. */
int wb_erase_batch_carry_out(struct wb_erase_batch *batch, const struct wb_control_erased_name **ret);
/* What showed between two changes; flags: 0 or WB_CONTROL_ERASE_DRY. 0, with ret->refused perhaps. */
int wb_request_erase_versions(int dir_fd, const char *path, unsigned flags, int64_t from, int64_t until,
                              struct wb_control_erased_versions *ret);

/*
 * Versions, newest first, fetched a few at a time:
 *
 *   struct wb_version_walk *walk = wb_version_walk_new(fd, path, 0, 0, 0);
 *   while ((r = wb_version_walk_next(walk, &version)) == 0) ...
 *   walk = wb_version_walk_free(walk);
 *
 * next: 0, 1 at the end, or a negative errno. The version lives until the next call.
 */
struct wb_version_walk;
struct wb_version_walk *wb_version_walk_new(int dir_fd, const char *path, int64_t since, int64_t until,
                                            uint64_t skip);
int wb_version_walk_next(struct wb_version_walk *walk, const struct wb_control_version **ret);
struct wb_version_walk *wb_version_walk_free(struct wb_version_walk *walk);

static inline void wb_version_walk_freep(struct wb_version_walk **walk)
{
    wb_version_walk_free(*walk);
}
/*
 * All names that were ever in a directory, a page at a time. `only`: that name alone, "": all; flags
 * WB_CONTROL_NAMES_SPANS. next: 0, 1 at the end, or a negative errno. The item lives until the next call.
 */
struct wb_name_walk;
struct wb_name_walk *wb_name_walk_new(int dir_fd, const char *path, const char *only, unsigned flags);
int wb_name_walk_next(struct wb_name_walk *walk, const struct wb_control_name **ret);
struct wb_name_walk *wb_name_walk_free(struct wb_name_walk *walk);

/* After the first call of next: when the history began, the moment of the directory, and reply flags. */
int64_t wb_name_walk_began(const struct wb_name_walk *walk);
int64_t wb_name_walk_moment(const struct wb_name_walk *walk);
unsigned wb_name_walk_flags(const struct wb_name_walk *walk);

/* Where a name moved to, and the command that ended it; parts of item->text. */
const char *wb_name_to(const struct wb_control_name *name);
const char *wb_name_command(const struct wb_control_name *name);

static inline void wb_name_walk_freep(struct wb_name_walk **walk)
{
    wb_name_walk_free(*walk);
}
#define _cleanup_name_walk_ __attribute__((cleanup(wb_name_walk_freep)))
#define _cleanup_walk_ __attribute__((cleanup(wb_version_walk_freep)))

/*
 * Has the daemon move the store to `to` (absolute; "": into the tree). 0 and *ret, which states whether it was; or a
 * negative errno: -EPERM, -EBUSY.
 */
int wb_request_move(int dir_fd, const char *to, unsigned flags, struct wb_control_moved *ret);
