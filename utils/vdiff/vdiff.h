/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

/*
 * vdiff compares a path at two moments, of which the second may be the present: first what changed in
 * the tree (compare.c), then the content of each file that did (content.c, text.c).
 */

#include <glib.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/stat.h>
#include "client/control.h"
#include "client/copy/flags.h"
#include "common/changed.h"
#include "common/json.h"
#include "common/mount.h"

/* The two sides: before and after. */
enum { OLD, NEW };

struct side {
    char *path; /* in the mount; NULL: there was nothing */
    char *time; /* local, for headings; NULL: the present */
    int64_t when;
};

/* One name on both sides. */
struct pair {
    const char *path; /* below PATH, "" for PATH itself */
    bool there[2];
    struct stat st[2];
    int dir[2];          /* where `name` is; -1: nowhere */
    const char *name[2];
    struct wb_control_identity identity[2]; /* with identified */
    bool identified;
    char flags[2][WB_FLAGS_TEXT_MAX]; /* with CHANGE_FLAGS */
};

enum detail {
    DETAIL_DIFF,  /* the tree, then the files */
    DETAIL_STAT,  /* lines added and removed   */
    DETAIL_BRIEF, /* the tree                  */
    DETAIL_NAMES, /* names only                */
    DETAIL_NONE,  /* the exit status only      */
};

struct diff {
    struct wb_place *place;
    struct side side[2];
    struct wb_changed *changed; /* the paths that may differ; NULL: all */
    enum detail detail;
    bool json;
    bool differs;
    GPtrArray *files;    /* paths below PATH whose content is to be shown */
    JsonBuilder *builder;
    uint64_t count;      /* names that differ, so far */
};

/* ---- the tree (compare.c) -------------------------------------------------------------------- */

/* What was found out about a pair: enum change. */
enum change {
    CHANGE_ADDED = 1 << 0,
    CHANGE_REMOVED = 1 << 1,
    CHANGE_TYPE = 1 << 2,
    CHANGE_CONTENT = 1 << 3,
    CHANGE_MODE = 1 << 4,
    CHANGE_OWNER = 1 << 5,
    CHANGE_TARGET = 1 << 6,
    CHANGE_DEVICE = 1 << 7,
    CHANGE_FLAGS = 1 << 8,
};

/* PATH with all below it; what differs is shown, and files go to diff->files. */
void diff_compare(struct diff *diff);

/* Target of a symbolic link, g_free; "" where it cannot be read. */
char *diff_target(const struct pair *pair, int side);

/* An error about `path` below PATH. */
void diff_fail(const struct diff *diff, const char *path, int error);

/* ---- content (content.c, text.c) ------------------------------------------------------------- */

struct difference {
    uint64_t size[2];
    uint64_t bytes, ranges, first; /* up to the shorter end */
    bool binary;
};

/* Opens a file below PATH, of one side; a descriptor or -errno. */
int diff_open(const struct diff *diff, int side, const char *path);

/* Reads both (-1: nothing there) to the end. 0 or -errno. */
int diff_bytes(const int fds[2], struct difference *ret);

/* Shows the content of one file that differs. */
void diff_content(struct diff *diff, const char *path);

/* Runs diff(1); its output line by line to `line`. 0, or -errno after an error line. */
typedef void (*diff_line)(void *data, const char *text, size_t length);
int diff_text(const struct diff *diff, const char *path, const int fds[2], diff_line line, void *data);

/* ---- showing (show.c) ------------------------------------------------------------------------ */

/* A changed name, in the form asked for. */
void diff_show(struct diff *diff, const struct pair *pair, unsigned changes);

/* What `path` below PATH is called by the user; g_free. */
char *diff_name(const struct diff *diff, const char *path);

/* "a/PATH" or "b/PATH", as patch(1) understands it; g_free. */
char *diff_label(const struct diff *diff, int side, const char *path);
