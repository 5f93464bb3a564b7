/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

/*
 * Computes the disk space of history: every file of the store once, and every record by its age. Bytes belong to the
 * directory in which their object was last named, according to its newest record: where it was lost, moved to, or
 * changed.
 *
 * The work is done in steps, so that the caller can report progress, and in bounded memory: things and directories
 * are kept in tables; if more things have files in the store than fit into one table, the catalogs are read in several
 * passes. Nothing is locked: while a daemon keeps running, concurrent changes count as they are found.
 */

#include "maintain/usage/largest.h"
#include "maintain/usage/programs.h"
#include "store/store.h"
#include <glib.h>

enum wb_usage_kind {
    WB_USAGE_UNDO,      /* undo logs                                             */
    WB_USAGE_CATALOG,   /* catalogs                                              */
    WB_USAGE_IMAGE,     /* before-images that were cloned                        */
    WB_USAGE_BODY,      /* deleted files and directories themselves              */
    WB_USAGE_TIMELINE,  /* the rest belongs to no directory                      */
    WB_USAGE_SNAPSHOTS,
    WB_USAGE_OTHER,     /* actors, the store's own files, and its directories    */
    WB_USAGE_KINDS
};

/* From the store's now: the last hour, day, week, 30 days, 365 days, and older. */
#define WB_USAGE_AGES 6

struct wb_usage_sum {
    uint64_t files;
    uint64_t bytes;  /* kept data: logs unpacked, of images the bytes in records        */
    uint64_t stored; /* length of the files                                             */
    uint64_t disk;   /* blocks they take                                                */
    uint64_t shared; /* of these, with other files: images only                         */
};

struct wb_usage_total {
    struct wb_usage_sum kinds[WB_USAGE_BODY + 1];
    uint64_t ages[WB_USAGE_AGES]; /* bytes, by the time of the change */
    uint64_t packed;              /* logs of which a part is packed   */
    int64_t oldest, newest;       /* records; 0: none                 */
    uint64_t gaps;                /* objects of which nothing is known for some time */
    int64_t gaps_since, gaps_until; /* the first of these times (0: from the beginning), and the end of the last */
};
void wb_usage_add(struct wb_usage_total *to, const struct wb_usage_total *one);

struct wb_usage_dir {
    struct wb_object self, parent;
    int64_t gone; /* when it last lost its name to nothing; 0: not known to have */
    char *name;   /* NULL: no record shows where it was */
    bool wanted;  /* it has no catalog: to be looked for in the tree */
    struct wb_usage_total total;
    struct wb_usage_shares shares; /* whose changes the bytes are of */
};

struct wb_usage {
    struct wb_store *store;
    int64_t now;
    unsigned things_most, dirs_most;       /* how large the tables get; tests make them small */
    GHashTable *things;                    /* of one pass */
    GHashTable *dirs;                      /* struct wb_usage_dir by `self` */
    struct wb_usage_total unplaced;        /* of things and directories that no record places */
    struct wb_usage_shares unplaced_shares;
    struct wb_usage_programs programs;
    GPtrArray *largest;                    /* files (largest.h); NULL unless set by the caller */
    unsigned largest_most;
    struct wb_usage_sum rest[WB_USAGE_KINDS]; /* bytes of no object   */
    uint64_t damaged;                      /* logs that could not be read whole */
    uint64_t looked, expected;             /* files, for a progress report */
    /* where it is */
    unsigned stage, area, shard, first, last;
    void *stream; /* DIR */
    uint32_t counts[256], catalogs;
    GArray *levels; /* of the tree (usage.c) */
    unsigned unplaced_dirs;
    bool all; /* directories of the tree are to be placed, whether something is in them or not */
    bool (*stop)(void *data);
    void *stop_data;
};

/* Begins; `now` is what ages are counted from. */
void wb_usage_init(struct wb_usage *usage, struct wb_store *store, int64_t now);
void wb_usage_deinit(struct wb_usage *usage);

/* Goes on until `deadline` (monotonic, us). 1: there is more to do; 0: done; -ECANCELED: `stop` said so; or -errno. */
int wb_usage_step(struct wb_usage *usage, int64_t deadline);

/* Bytes of extents that other files have, too; 0 if the file system does not report them. */
uint64_t wb_usage_shared(int fd);

/* Of one object that is no directory, without the others; *shares: wb_usage_shares_clear. 0 or -errno. */
int wb_usage_of(struct wb_usage *usage, struct wb_object object, struct wb_usage_total *ret,
                struct wb_usage_shares *shares);

/* The directory, made where it is not known yet; NULL where there are too many. */
struct wb_usage_dir *wb_usage_dir(struct wb_usage *usage, struct wb_object self);

/* Places directories that have no catalog, as they are in the tree. 1: there is more to do, 0 or -errno. */
int wb_usage_tree(struct wb_usage *usage, int64_t deadline);

/* Whether `dir` is `scope` or below it, as placed last; *ret_depth: how far. `chain` (WB_USAGE_DEPTH_MAX) becomes the
 * directories from the child of `scope` down to `dir`. */
#define WB_USAGE_DEPTH_MAX 2048
bool wb_usage_chain(const struct wb_usage *usage, const struct wb_usage_dir *dir, struct wb_object scope,
                    const struct wb_usage_dir **chain, unsigned *ret_depth);
