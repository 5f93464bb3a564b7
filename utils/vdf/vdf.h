/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

/* The parts of vdf. */

#include "common/mount.h"
#include <glib.h>
#include <stdbool.h>
#include <stdio.h>

/* ---- asking the mount (read.c) ------------------------------------------------------------------ */

struct usage {
    struct wb_control_usage sums;
    unsigned flags;
    bool has_freed; /* of PATH, if the caller may erase it: not of the whole tree */
    struct wb_control_freed freed;
    bool has_budget; /* of the whole store, if the caller may know it */
    struct wb_control_budget budget;
    uint64_t user_max_size; /* 0: not set, or not shown to the caller */
    struct wb_control_user users[WB_CONTROL_BUDGET_USERS_MAX];
    unsigned user_count;
    GPtrArray *snapshots; /* with a budget, as of wb_request_snapshot_list; NULL: that is not known */
    GPtrArray *dirs; /* struct wb_control_usage_dir, in byte order of paths */
    GPtrArray *files; /* the same, the largest first */
    GPtrArray *programs; /* struct wb_control_usage_program, the largest first; those of kind REST at the end */
};

/* 0 or -errno; -EINTR where it was interrupted. */
int usage_read(int dir_fd, const char *path, unsigned depth, unsigned most, struct usage *ret);
void usage_clear(struct usage *usage);

/* The limits of the history, and the snapshot that protects it; none from an older daemon, or for other users. */
void budget_read(int dir_fd, struct usage *usage);

/* ---- showing it (show.c) ------------------------------------------------------------------------ */

/* What follows from the sums. */
struct outlook {
    struct wb_control_usage_sum all;
    uint64_t logs_bytes, logs_stored; /* undo logs and catalogs: unpacked, and as they are   */
    uint64_t day, week;               /* bytes of changes of these times                     */
    uint64_t rate;                    /* bytes per day, of the last week or since it began   */
    int64_t days_left;                /* -1: unknown                                         */
};
void outlook_of(const struct usage *usage, struct outlook *ret);

struct show_usage {
    const char *given;   /* PATH as the user wrote it */
    const char *path;    /* the same, in the mount    */
    int root_fd;         /* of the mount              */
    bool is_root;        /* PATH is the root of it    */
    bool may_free;       /* the caller may erase it   */
    bool bytes;          /* plain numbers             */
    bool has_dirs;
    bool plot;           /* with bars */
};
void show_usage_text(FILE *out, const struct usage *usage, const struct show_usage *show);
void show_usage_json(const struct usage *usage, const struct show_usage *show);

/* ---- the commands beside the rows (free.c) ------------------------------------------------------- */

/* g_free; NULL: the caller may not do it. `path`: below PATH, "" is PATH itself. */
char *free_path(const struct show_usage *show, const char *path, bool is_dir);
/* Frees the changes of that age, and those that are older. */
char *free_age(const struct show_usage *show, unsigned age);
/* Lists the changes that a program made. */
char *list_program(const struct show_usage *show, const struct wb_control_usage_program *program);

/* ---- what it may take (budget.c) ---------------------------------------------------------------- */

struct budget_outlook {
    unsigned percent; /* of max-size */
    int64_t days;     /* until max-size or reserve is reached; -1: unknown        */
};
void budget_foresee(const struct usage *usage, const struct outlook *outlook, struct budget_outlook *ret);

/* The snapshot since which nothing goes by itself, or NULL. */
const struct wb_control_snapshot *budget_holder(const struct usage *usage);
/* What the history of each user's changes takes, where that is limited. */
void show_users(FILE *out, const struct usage *usage, const struct show_usage *show);
void show_budget(FILE *out, const struct usage *usage, const struct show_usage *show, const struct outlook *outlook);
