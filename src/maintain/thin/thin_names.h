/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

/*
 * The names in catalogs, and the paths of a file, for rules that depend on paths: every recorded name it had, with the
 * directory at its present or last place. Directories that no record mentions are searched for in the tree, once,
 * if there are any.
 */

#include "maintain/usage/usage.h"

struct wb_thin_name {
    struct wb_object object, dir;
    const char *name; /* lives as long as the table */
};

/* Something came from another directory to a name. */
struct wb_thin_arrival {
    struct wb_thin_name to;
    struct wb_object from;
};

struct wb_thin_names {
    struct wb_usage dirs;   /* of which only the directories are used                        */
    GArray *list;           /* of struct wb_thin_name                                        */
    GArray *arrivals;       /* of struct wb_thin_arrival                                     */
    GHashTable *distrusted; /* struct wb_object: directories whose catalogs are damaged      */
    GHashTable *strayed;    /* struct wb_thin_name: arrivals from one of these; from which   */
    GStringChunk *strings;
    bool walked;          /* the tree was                           */
};

void wb_thin_names_init(struct wb_thin_names *names, struct wb_store *store, bool (*stop)(void *data), void *data);
void wb_thin_names_deinit(struct wb_thin_names *names);

/* Notes the names in a record of a catalog; they come newest first. 0, or -E2BIG: there are too many names. */
int wb_thin_names_take(struct wb_thin_names *names, struct wb_object dir, const struct wb_record *record);

/* The catalog of that directory is damaged. 0, or -E2BIG: so are too many. */
int wb_thin_names_distrust(struct wb_thin_names *names, struct wb_object dir);

/* Adds the name in a record of a file's undo log to `vias` (of struct wb_thin_name). */
void wb_thin_names_via(struct wb_thin_names *names, GArray *vias, const struct wb_record *record);

/* All catalogs were read. */
void wb_thin_names_settle(struct wb_thin_names *names);

/*
 * Calls `take` with each path of an object, from the root of the tree, until it returns not 0, which is returned; with
 * NULL, if the place of a name is not known, or fewer names are known than `links`, which it had at one time. 0 or
 * -errno.
 */
int wb_thin_names_each(struct wb_thin_names *names, struct wb_object object, const GArray *vias, uint32_t links,
                       int (*take)(void *data, const char *path), void *data);

/* The path of one name, which then is all that counts. */
int wb_thin_names_one(struct wb_thin_names *names, struct wb_object dir, const char *name,
                      int (*take)(void *data, const char *path), void *data);

/*
 * Whether the object may have had a name that only a damaged catalog recorded: in the directory *ret. That is so if the
 * catalog of a directory in which it was, or from which it came, is damaged; with `anywhere` (no record shows how it
 * came to where it was), if any catalog is.
 */
bool wb_thin_names_doubted(struct wb_thin_names *names, struct wb_object object, const GArray *vias, bool anywhere,
                           struct wb_object *ret);
