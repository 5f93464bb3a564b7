/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

/*
 * vfind walks a tree of names, those that are there and those that were. A directory is a path as people see it,
 * together with everything that ever was a directory under that path (a "source"): what is there now, and each that was
 * removed. The names of all sources together are the names of the directory.
 *
 * Names that moved away are shown as moved, and not searched: they are listed under the new name.
 */

#include <glib.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/stat.h>
#include "common/mount.h"

/* ---- what is asked for (match.c) ------------------------------------------------------------- */

enum find_status { FIND_PRESENT = 1, FIND_DELETED = 2, FIND_MOVED = 4 };

struct find_match {
    const char *pattern; /* NULL: everything */
    bool whole;          /* it holds a '/': matched against the path below PATH */
    bool ignore_case;
    GRegex *regex;       /* --regex */
    unsigned status;     /* enum find_status, 0: any */
    int64_t since, until; /* 0: not given */
    mode_t types[8];     /* S_IFMT values */
    unsigned type_count;
};

/* --regex and --type; 0 or WB_EXIT_USAGE. */
int find_match_regex(struct find_match *match);
int find_match_types(struct find_match *match, const char *letters);

bool find_match_name(const struct find_match *match, const char *path, const char *name);

/* ---- names of a directory (read.c) ----------------------------------------------------------- */

struct source {
    char *path;   /* in the mount: "a/b@1763696000.123456789/c" */
    bool present; /* what is there now (or at PATH@TIME)        */
    int64_t end;  /* else: when it was removed                  */
    int64_t moment; /* the time as of which its names are; 0: not read yet, INT64_MAX: the present */
};
void source_free(void *source);

struct span {
    const struct source *source;
    mode_t mode;
    uint64_t ino, size;
    int64_t birth, first, last; /* last 0: present */
    uint32_t actor, uid, pid;
    bool moved, replaced;
    char *to, *command;
};

struct entry {
    char *name;
    unsigned count;    /* spans in all */
    GPtrArray *spans;  /* struct span, newest first; those of which details are known */
};

struct find {
    struct wb_place *place;
    struct find_match match;
    bool all, json, zero, verbose;
    int maxdepth;
    int64_t began;  /* of the history                                                */
    bool pages;     /* the pager begins before the first row                         */
    bool headed;    /* the heading is printed                                        */
    uint64_t shown; /* rows                                                          */
    bool full;      /* more waits for that than fits into memory                       */
    unsigned held;  /* removed directories whose rows wait for what is below them    */
    unsigned muted; /* levels beyond --depth    that are looked at, but not shown     */
    char *prefix;   /* PATH as commands take it: without a moment, "" for this directory */
    struct wb_states *states; /* --content; NULL: not given                          */
};

/* A time of which nothing is known of a directory. */
struct gap {
    int64_t since, until; /* since 0: the beginning */
    bool open;            /* it lasts: `until` is when it was noted */
    char *reason;
};

/*
 * Of a directory whose names may not all be known (find_read): struct gap, newest first. NULL: unknown.
 */
GPtrArray *find_read_gaps(struct find *find, const GPtrArray *sources);

/* The names of all sources, in byte order: struct entry; `only` that one, "": all. A source that cannot be read is an
 * error about `shown`, which may be NULL. *ret_incomplete: names may be missing; may be NULL. */
GPtrArray *find_read(struct find *find, const GPtrArray *sources, const char *only, const char *shown,
                     bool *ret_incomplete);

/* The size of a file at the end of the span; of a present one, its size now, without a look into the history. */
uint64_t find_size(const struct find *find, const struct entry *entry, const struct span *span);

/* dir/name of `source` as it was just before `when`; g_free. */
char *find_path_before(const struct find *find, const struct source *source, const char *name, int64_t when);

/* ---- files that have a text (content.c) ------------------------------------------------------ */

struct find_content {
    const struct wb_state *first, *last; /* that have the text                                  */
    unsigned index;   /* --all: 0 the newest period                                             */
    bool now;         /* the present state has it                                               */
    unsigned unknown; /* number of states that cannot be read                                   */
    int error;        /* the last reason                                                        */
};

/* Shows the file `path` below PATH if a state of it has the text of --content, and which of its states are unknown. */
void find_content(struct find *find, GString *out, const char *path, const struct entry *entry);

/* ---- the walk (walk.c) ----------------------------------------------------------------------- */

enum find_status find_status_of(const struct span *span);
void find_run(struct find *find);

/* ---- showing (show.c) ------------------------------------------------------------------------ */

/* Prints what was gathered, under a heading where it is for people; `out` is empty then. */
void find_flush(struct find *find, GString *out);

/* `path` below PATH. `back`: the moment at which it was whole, 0: it is there. `index`: 0 the newest span. */
void find_show(struct find *find, GString *out, const char *path, const struct entry *entry,
               const struct span *span, unsigned index, int64_t back);
void find_show_content(struct find *find, GString *out, const char *path, const struct span *newest,
                       const struct find_content *content);
/* A file of which states are unknown that may have the text: a row, and an error. */
void find_show_unknown(struct find *find, GString *out, const char *path, const struct find_content *content);
void find_show_gap(struct find *find, GString *out, const char *path, const struct gap *gap);
