/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

/*
 * Plans which records an erasure removes from the catalogs of directories that remain.
 *
 * A catalog is planned from its newest record backward, because a record holds the state of a name before the change
 * and not after it: only the later record by which the name was lost shows whether a birth is that of an erased object.
 * The actions are kept by offset, so that the catalog can be rewritten from its beginning.
 */

#include "maintain/erase/erase_set.h"

enum wb_slot_action {
    WB_SLOT_KEEP,
    WB_SLOT_DROP,         /* nothing is said of this name here                           */
    WB_SLOT_DROP_LOSS,    /* an erased object gave way to one that stays                 */
    WB_SLOT_DROP_ARRIVAL, /* an erased object took the name from one that stays          */
};

struct wb_record_action {
    uint64_t offset; /* the key */
    enum wb_slot_action slots[WB_SLOTS_MAX];
    bool drop_record;
};

struct wb_catalog_edit {
    struct wb_erasure *erasure;
    struct wb_object dir;
    struct wb_origin *origin; /* of an erased name itself, or NULL                  */
    bool leads;            /* what its names had stays: it leads to what still goes */
    GHashTable *held;      /* names that an erased object has at the moment reached: which */
    GHashTable *aborted;   /* `when` of changes that never happened                 */
    GHashTable *actions;   /* offset -> struct wb_record_action, of what does not stay   */
};

struct wb_catalog_edit wb_catalog_edit_begin(struct wb_erasure *erasure, struct wb_object dir);
void wb_catalog_edit_end(struct wb_catalog_edit *edit);

/* Judges every record of the catalog; damaged ones are passed over. 0 or -errno. */
int wb_catalog_edit_plan(struct wb_catalog_edit *edit);

/* Whether the records of the name from which an object came are erased. */
bool wb_came_from_erased(const struct wb_erasure *erasure, const struct wb_record *record,
                         const struct wb_slot *slot);
