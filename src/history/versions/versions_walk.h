/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

/*
 * The walk behind wb_versions: back along a name, and along the objects that came to it from
 * elsewhere, merged by `when`.
 *
 * A strand is one (directory, name) with the object that is bound to it at the moment the walk has
 * reached. It reads two logs: the directory's catalog (when did the name change hands, what
 * attributes did the object have) and the object's undo log. There are two kinds:
 *
 * - the name's own strand stays with its name for ever and takes whatever object was there;
 * - a following strand stays with its object: where the object came from another name, the
 *   strand goes there, and where the object was born it ends.
 *
 * The name's strand starts a following one wherever an object came from elsewhere to a name that
 * was free; where it replaced something, what was replaced is this name's past. At most
 * WB_STRANDS_MAX strands are alive at a moment, hence at most two readers for each of them and one for
 * a directory's own catalog; an object that comes to the name while that many former lives are being
 * told is listed from its arrival on only.
 */

#include "history/history.h"
#include "history/source.h"

#define WB_STRANDS_MAX 8

struct wb_strand {
    struct wb_object dir;
    char name[WB_NAME_MAX + 1];
    bool follows; /* its object, else its name                                    */
    bool is_dir;  /* the object is a directory: no undo log                       */
    bool bound;   /* the object has the name at the moment reached                */
    struct wb_object object;
    struct wb_attrs attrs; /* of the object at the moment reached, as far as known */
    int64_t before;        /* only older records of the catalog are met            */
    int64_t undo_before;   /* and of the undo log                                  */
    int64_t reached;       /* the oldest record of the catalog that was taken; `before` if none was */
    int64_t undo_reached;  /* of the record of the undo log that a version was made of last */
    struct wb_source catalog;
    struct wb_source undo;
};

/* What one change amounts to: the version, and where its before-state is found. */
struct wb_note {
    struct wb_version version;
    unsigned rank; /* of the record told so far: a change of names says more than one of attributes */
    struct wb_object before_dir;
    char before_name[WB_NAME_MAX + 1];
};

struct wb_walk {
    struct wb_store *store;
    struct wb_object self; /* a directory whose own changes are listed, or none */
    struct wb_source own;  /* its catalog                                        */
    int64_t own_before;
    unsigned count;
    struct wb_strand strands[2 * WB_STRANDS_MAX]; /* twice only in the middle of a step */
};

/* Adds a strand; `before` bounds both logs. 0 or -errno. */
int wb_walk_add(struct wb_walk *walk, struct wb_object dir, const char *name, bool follows,
                struct wb_object object, const struct wb_attrs *attrs, bool bound, int64_t before);

/* Ends strand `index`. */
void wb_walk_drop(struct wb_walk *walk, unsigned index);

/* Brings the next record of every log into view. 0, WB_DAMAGED (call again) or -errno. */
int wb_walk_fill(struct wb_walk *walk);

/* `when` of the next change, 0 where there is none. */
int64_t wb_walk_next_when(const struct wb_walk *walk);

/* The same as far as catalogs have it. */
int64_t wb_walk_next_name(const struct wb_walk *walk);

/* Takes all records of `when` and later from the undo logs, where catalogs have none as late. 0 or -errno. */
int wb_walk_pass_undo(struct wb_walk *walk, int64_t when);

/* Takes all records of that change and tells them to `note`. 0, WB_DAMAGED (done nevertheless) or -errno. */
int wb_walk_step(struct wb_walk *walk, int64_t when, struct wb_note *note);

void wb_walk_deinit(struct wb_walk *walk);

/* ---- what comes into view (versions_fill.c) ------------------------------------------------------ */

/* The next record that concerns the strand, of either log, or the directory's own. 0, WB_DAMAGED (call
 * again) or -errno. */
int wb_strand_fill_catalog(struct wb_strand *strand);
int wb_strand_fill_undo(struct wb_strand *strand);
int wb_walk_fill_own(struct wb_walk *walk);

/* Learns from the change at which the strand begins who its object is, and what it was like. */
void wb_strand_recognise(struct wb_strand *strand, const struct wb_record *record);

/* ---- telling (versions_note.c) ----------------------------------------------------------------- */

/* A slot changed hands, as the strand sees it (its state is still that after the change). */
void wb_note_slot(struct wb_note *note, const struct wb_strand *strand, const struct wb_record *record,
                  const struct wb_slot *slot);

/* An object came to `strand`'s name from slot->from_*, where it had `attrs` before. */
void wb_note_arrival(struct wb_note *note, const struct wb_strand *strand, const struct wb_record *record,
                     const struct wb_slot *slot, const struct wb_attrs *attrs);

/* DATA, XATTR or ATTR of the strand's object, NULL: the root itself. */
void wb_note_object(struct wb_note *note, const struct wb_strand *strand, const struct wb_record *record);

/* A change of a directory's entries. */
void wb_note_entry(struct wb_note *note, struct wb_object dir, const struct wb_record *record);

/* Attributes before, of whatever record has them for an object; NULL for other types. */
const struct wb_attrs *wb_record_attrs(const struct wb_record *record);
