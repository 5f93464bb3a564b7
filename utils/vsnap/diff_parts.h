/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

/* What the files of the comparison share: diff_walk.c, diff_same.c, diff_match.c. */

#include "diff.h"

/* Something on one of the two lists. */
struct found {
    struct wb_control_entry *entry;
    char *path;
    struct found *parent;  /* the directory it is in, if that is on the list, too */
    struct found *partner; /* the same object on the other list                   */
    bool settled;
};

/* One thing at one of the two moments. */
struct there {
    int dir_fd;
    const char *name;
    const struct wb_control_entry *entry;
};

/* Entries are counted: only those that something was found out about outlive their directory. */
static inline void *diff_entry_ref(const struct wb_control_entry *entry)
{
    return entry ? g_rc_box_acquire((struct wb_control_entry *)entry) : NULL;
}

static inline void diff_entry_unref(void *entry)
{
    if (entry)
        g_rc_box_release(entry);
}

/* The same object. */
static inline bool diff_is_same(const struct wb_control_entry *a, const struct wb_control_entry *b)
{
    return a->ino == b->ino && a->birth == b->birth;
}

void diff_fail(struct diff *diff, const char *path, int error);
void diff_tell(struct diff *diff, enum change_kind kind, const char *path, const char *from,
               struct wb_control_entry *before, struct wb_control_entry *after);

/* Both exist: reports whether type, content or attributes differ. `path` is that of the later one. */
void diff_same(struct diff *diff, const struct there *a, const struct there *b, const char *path);

/* Reports the changes between the two lists. */
void diff_match(struct diff *diff);
