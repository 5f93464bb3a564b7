/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

/* Changes below a path: fetched (walk.c), and shown (show.c). */

#include "common/mount.h"
#include "wayback/when.h"
#include <stdio.h>

/* One change; its strings live until the next one is asked for, "" where there is none. */
struct change {
    const struct wb_control_change *entry;
    const char *op, *path, *other, *detail, *command;
    uint32_t uid, gid, pid;
};

struct walk;
struct walk_options {
    int64_t since, until; /* 0: open */
    bool by_user;
    uint32_t uid;
    const char *command;  /* part of a command line, or NULL */
};

struct walk *walk_new(const struct wb_place *place, const struct walk_options *options);
struct walk *walk_free(struct walk *walk);
/* Newest first: 0, 1 at the end, or -errno. Waits while the timeline is being built, and says so. */
int walk_next(struct walk *walk, struct change *ret);

/* For keeping one: g_free. */
struct kept_change {
    struct change change;
    uint64_t data[];
};
struct kept_change *change_keep(const struct change *change);

/* ---- showing -------------------------------------------------------------------------------------- */

struct show {
    bool verbose;
    const char *self;      /* how PATH itself is called: as it was given */
    bool open;             /* a line is gathered */
    uint32_t actor;        /* of the group that was begun */
    bool gap;              /* the group is of gaps */
    bool begun;
    char *op, *path;       /* of the line that is gathered */
    char *rest;
    uint64_t count, bytes;
    char time[WB_WHEN_TEXT_MAX + 4]; /* verbose: of the line */
};
void show_change(struct show *show, const struct change *change);
void show_end(struct show *show);
void show_json(const struct change *change);
