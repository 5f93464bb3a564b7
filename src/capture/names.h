/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

/* What operations on names share: names.c, rename.c, restore.c. */

#include "capture/plan.h"

/* What dir_fd/name is just before a change; `present` states whether it exists. 0 or -errno. */
struct wb_entry {
    const char *name;
    bool present;
    struct wb_object object;
    struct wb_attrs attrs;
};
int wb_entry_look(struct wb_store *store, const struct wb_dir *dir, const char *name, struct wb_entry *ret);

static inline bool wb_entry_is_dir(const struct wb_entry *entry)
{
    return entry->present && S_ISDIR(entry->attrs.mode);
}

/* 0, -ENOTEMPTY, or -errno (-EACCES where it cannot be read). */
int wb_entry_check_empty(const struct wb_dir *dir, const char *name);

/* A NAME record for dir's catalog, which is made if need be, with the directory's own attributes and no slot yet. */
int wb_plan_add_name(struct wb_plan *plan, struct wb_dir *dir, struct wb_rec_name **ret);

/* Adds the slot `entry` to a NAME record: the former holder of the name, not moved anywhere yet. */
struct wb_slot *wb_name_add_slot(struct wb_rec_name *record, const struct wb_entry *entry);

/* Where the object that loses the slot goes, and where the one that takes it comes from. */
void wb_slot_set_to(struct wb_slot *slot, struct wb_object dir, const char *name);
void wb_slot_set_from(struct wb_slot *slot, struct wb_object dir, const char *name);

/*
 * A file with several names that loses, moves or gains one: its link count or change time are seen through the
 * others, so its attributes go to its own log too. Nothing for all else.
 */
void wb_plan_add_links(struct wb_plan *plan, const struct wb_entry *entry);

/* wb_change_gap for a change of dir/name, and for what its other names would show of it. */
int wb_change_gap_name(struct wb_store *store, struct wb_change *change, int error, const struct wb_dir *dir,
                       const struct wb_entry *entry);
