/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

/*
 * The walk behind wb_versions: back along a name, and along the objects that came to it from elsewhere, merged by
 * `when`.
 *
 * A lineage is one (directory, name) with the object that is bound to it at the present moment of the walk. It reads
 * two logs: the directory's catalog (changes of the name's object, and attributes of the object) and the object's undo
 * log. There are two kinds:
 *
 * - the name's own lineage keeps its name for the whole walk, whatever object has it;
 * - a following lineage keeps its object: if the object came from another name, the lineage moves there, and where the
 *   object was created it ends.
 *
 * The name's lineage starts a following one whenever an object came from elsewhere to a name that was free; if it
 * replaced another object, the replaced one is this name's past. At most WB_LINEAGES_MAX lineages exist at a moment,
 * hence at most two readers for each of them and one for a directory's own catalog; an object that comes to the name
 * while that many lineages exist is listed from its arrival on only.
 */

#include "history/history.h"
#include "history/log_cursor.h"

#define WB_LINEAGES_MAX 8

struct wb_lineage {
    struct wb_object dir;
    char name[WB_NAME_MAX + 1];
    bool follows; /* keeps its object, else its name                              */
    bool is_dir;  /* the object is a directory: no undo log                       */
    bool bound;   /* the object has the name at the present moment of the walk    */
    struct wb_object object;
    struct wb_attrs attrs; /* of the object at the present moment, as far as known */
    int64_t before;        /* only older records of the catalog are read           */
    int64_t undo_before;   /* and of the undo log                                  */
    int64_t reached;       /* the oldest record of the catalog that was processed; `before` if none was */
    int64_t undo_reached;  /* and the record of the undo log from which the last version was made */
    struct wb_log_cursor catalog;
    struct wb_log_cursor undo;
};

/* The description of one change: the version, and the place of its before-state. */
struct wb_note {
    struct wb_version version;
    unsigned rank; /* of the record used so far: a change of names has more information than one of attributes */
    struct wb_object before_dir;
    char before_name[WB_NAME_MAX + 1];
};

struct wb_walk {
    struct wb_store *store;
    struct wb_object self; /* a directory whose own changes are listed, or none */
    struct wb_log_cursor own; /* its catalog                                        */
    int64_t own_before;
    unsigned count;
    struct wb_lineage lineages[2 * WB_LINEAGES_MAX]; /* twice as many only during a step */
};

/* Adds a lineage; `before` bounds both logs. 0 or -errno. */
int wb_walk_add(struct wb_walk *walk, struct wb_object dir, const char *name, bool follows,
                struct wb_object object, const struct wb_attrs *attrs, bool bound, int64_t before);

/* Ends lineage `index`. */
void wb_walk_drop(struct wb_walk *walk, unsigned index);

/* Reads the next record of every log. 0, WB_DAMAGED (call again) or -errno. */
int wb_walk_fill(struct wb_walk *walk);

/* `when` of the next change, 0 if there is none. */
int64_t wb_walk_next_when(const struct wb_walk *walk);

/* The same, as far as catalogs have it. */
int64_t wb_walk_next_name(const struct wb_walk *walk);

/* Passes over the records of `when` and later in the undo logs, if no catalog has one as late. 0 or -errno. */
int wb_walk_pass_undo(struct wb_walk *walk, int64_t when);

/* Processes all records of that change and describes them in `note`. 0, WB_DAMAGED (done nevertheless) or -errno. */
int wb_walk_step(struct wb_walk *walk, int64_t when, struct wb_note *note);

void wb_walk_deinit(struct wb_walk *walk);

/* ---- description (versions_walk.c) ------------------------------------------------------------- */

/* The attributes before in any record that has them for an object; NULL for other types. */
const struct wb_attrs *wb_record_attrs(const struct wb_record *record);
