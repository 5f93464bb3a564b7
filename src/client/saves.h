/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

/*
 * The versions of a path, newest first: all that one process did to a file from open to close, or without a pause of
 * two seconds (history/versions/saves.h). Gaps are listed among them; changes of attributes alone are not.
 *
 *   _cleanup_save_walk_ struct wb_save_walk *walk = wb_save_walk_new(fd, path, since, until);
 *   while ((r = wb_save_walk_next(walk, &save)) == 0) ...
 */

#include "wayback/control.h"
#include <stdbool.h>

struct wb_save {
    uint32_t number;     /* 1: the most recent; 0: a gap, which `newest` describes */
    uint32_t operations; /* so many changes; those before `since` and after `until` of the walk are not counted */
    struct wb_control_version newest, oldest; /* the last and the first of them, equal if there is one */
    bool moved;          /* one of them has another name: a rename, or a link */
    uint64_t from, to;   /* the range of all changed bytes; from == to: none */
};

/* The operation, as of a version with one change; of several "create", "write", or the one that removed the file. */
const char *wb_save_operation(const struct wb_save *save);

struct wb_save_walk;
struct wb_save_walk *wb_save_walk_new(int dir_fd, const char *path, int64_t since, int64_t until);
/* 0, 1 at the end, or a negative errno. The version lives until the next call. */
int wb_save_walk_next(struct wb_save_walk *walk, const struct wb_save **ret);
struct wb_save_walk *wb_save_walk_free(struct wb_save_walk *walk);

static inline void wb_save_walk_freep(struct wb_save_walk **walk)
{
    wb_save_walk_free(*walk);
}
#define _cleanup_save_walk_ __attribute__((cleanup(wb_save_walk_freep)))
