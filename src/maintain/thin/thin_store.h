/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

/*
 * Thinning of all files of a store, by one rule (thin.h is about one file). A file is an object: its versions are those
 * between the changes of it, whatever it was called. All names count alike, so no name loses what another is kept for.
 *
 *  1. All catalogs are read: when names and attributes of which object changed. A version is kept if a catalog has a
 *     record between it and the next version.
 *  2. Catalog by catalog: files that were made aside and renamed over another, as editors save (thin_saves.h), and were
 *     replaced likewise, are versions of the name. decide.h decides which of these are kept; the others are removed.
 *  3. Undo log by undo log: decide.h decides which versions are kept, and the others are dropped.
 *
 * A snapshot pins the state of every file at its moment, also outside the directory it is of; and so does a moment
 * that another process shows (tables/pins.h). If a catalog is damaged, or lacks changes, versions of objects that it
 * may have recorded are kept (thin_catalogs.h), and all others are thinned.
 */

#include "policy/decide.h"
#include "store/store.h"

struct wb_thin_options {
    struct wb_retention retention; /* of all files; but where `rule` is set, */
    /* what holds for a path from the root of the tree: NULL, all stays. A version of a file goes if no rule of any name
     * the file ever had holds it. */
    const struct wb_retention *(*rule)(void *data, const char *path);
    int64_t since; /* versions replaced before this moment are kept */
    struct wb_object only; /* not none: of this file alone, */
    struct wb_object only_dir; /* and those that had its name there before */
    const char *only_name;
    bool dry_run;
    bool (*stop)(void *data); /* asked now and then */
    /* Around the moment at which versions of a file go; may be NULL. */
    void (*begin)(void *data, struct wb_object object);
    void (*end)(void *data, struct wb_object object);
    /* Keeps all changes of the tree away for a moment, and lets them go on. */
    void (*own)(void *data);
    void (*release)(void *data);
    /* Whether somebody still has a deleted file open. Asked again with the tree owned, before it goes. */
    bool (*in_use)(void *data, struct wb_object object);
    void *data;
};

struct wb_thin_count {
    uint64_t logs, changed;           /* logs looked at, and written anew                */
    uint64_t dropped;                 /* versions that went                              */
    uint64_t log_bytes, image_bytes;  /* freed                                           */
    uint64_t bodies, body_bytes;      /* files that went, and were versions of a name    */
    uint64_t kept;                    /* logs left as they are for an error, see `error` */
    int error;                        /* the last of these, -errno                       */
    uint64_t held;                    /* files that kept versions since a damaged catalog may have recorded them */
    struct wb_object lacking;         /* the directory of the last such catalog          */
};

struct wb_thinner;

/* 0; -EBUSY: another process reads the store, and may know of any moment; or -errno. `now` as wb_decide has it. */
int wb_thinner_begin(struct wb_thinner **ret, struct wb_store *store, const struct wb_thin_options *options,
                     int64_t now);

/* One step, number 0 to WB_THIN_STEPS - 1, in this order. 0; -ECANCELED: stop was requested; or -errno. */
#define WB_THIN_STEPS 768u
int wb_thinner_step(struct wb_thinner *thinner, unsigned step, struct wb_thin_count *count);

/* What a directory is called from the root of the tree, "." for that, or by its catalog where that is not known; cut to
 * fit. */
void wb_thin_name_unknown(const struct wb_store *store, struct wb_object dir, char *ret, size_t size);

struct wb_thinner *wb_thinner_free(struct wb_thinner *thinner); /* returns NULL */
