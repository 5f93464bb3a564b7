/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

/* The list of all changes below a path, newest first, a page at a time. */

#include "common/mount.h"
#include "wayback/when.h"
#include <stdbool.h>

/* One change; its strings live until the next one is asked for, "" where there is none. */
struct wb_change {
    const struct wb_control_change *entry;
    const char *op, *path, *other, *detail, *command;
    uint32_t uid, gid, pid;
};

struct wb_change_walk;
struct wb_change_walk_options {
    int64_t since, until;        /* 0: open */
    bool by_user;
    uint32_t uid;
    const char *const *commands; /* ends with NULL: only changes by commands that contain one of these; or NULL */
    bool no_wait;                /* -EAGAIN instead of waiting while the timeline is being built */
};

struct wb_change_walk *wb_change_walk_new(const struct wb_mount *mount, const char *path,
                                          const struct wb_change_walk_options *options);
struct wb_change_walk *wb_change_walk_free(struct wb_change_walk *walk);
/* 0, 1 at the end, or -errno. Waits while the timeline is being built, and says so (see no_wait). */
int wb_change_walk_next(struct wb_change_walk *walk, struct wb_change *ret);

static inline void wb_change_walk_freep(struct wb_change_walk **walk)
{
    wb_change_walk_free(*walk);
}
#define _cleanup_change_walk_ __attribute__((cleanup(wb_change_walk_freep)))

/* For keeping one: g_free. */
struct wb_kept_change {
    struct wb_change change;
    uint64_t data[];
};
struct wb_kept_change *wb_change_keep(const struct wb_change *change);
