/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

/*
 * The restores that the history shows. Nothing is stored for them: a restore is all that one process of vrevert (or
 * `wayback restore`, or of the page of vweb) changed, an undo or redo all that one process of this tool changed. The
 * command line of such a process, which the history records, begins with --op=ID, so that it is known which restore was
 * undone.
 */

#include "common/changed.h"
#include "common/changes.h"
#include <glib.h>
#include <stdbool.h>
#include <stdint.h>

/* One restore, undo or redo. */
struct restore {
    int64_t first, last;      /* times of its first and last change; `first` is its ID */
    uint32_t uid, pid;
    char *command;
    uint64_t changes;
    uint64_t added, removed, changed; /* names that exist since then, that do not any more, and others */
    struct wb_changed *paths; /* that it changed, relative to the root_fd of the mount */
    GHashTable *objects;      /* "inode-birth" of those that it changed, as text      */
    GHashTable *linked;       /* of these, files with several names -> number for links.c */
    char *top;                /* the deepest of all paths at or above these           */
    GHashTable *names;        /* while it is read: path -> struct name                */
    bool outside;             /* it changed something above root_fd, too              */

    bool by_undo;             /* made by this tool                        */
    char *inverts_text;       /* --op of its command line, or NULL        */
    struct restore *inverts;  /* the restore that it undid; NULL: made by vrevert, or not known */
    struct restore *undone_by; /* the undo that took its effect away, or NULL */
    int64_t effective;        /* since when, after the last undo and redo */
};

/*
 * All that the caller may see, newest first: an array of struct restore *, g_ptr_array_unref. NULL with *error, a
 * negative errno. -EINTR: stopped.
 */
GPtrArray *restores_read(const struct wb_mount *mount, int *error);

/* Adds the other names of files with several names to `paths`. */
void restore_find_links(const struct wb_mount *mount, struct restore *restore);

/* The restore that made this change, or NULL. */
struct restore *restore_of(const GPtrArray *restores, const struct wb_change *change);

/* Where a path of the list of changes is below root_fd, g_free; an unknown name stands for its directory. NULL: it is
 * not below root_fd. */
char *restore_path(const char *path, bool *ret_unknown);

/* An object, as in `objects`. False: the record of the change does not have it. */
#define RESTORE_OBJECT_MAX 48
bool restore_object(uint64_t inode, int64_t birth, char text[RESTORE_OBJECT_MAX]);

/* The ID of a restore: the time of its first change. Returns `text`. */
const char *restore_id(const struct restore *restore, char text[WB_WHEN_TEXT_MAX]);
/* As many digits of it as tell it from those of the others. */
const char *restore_short_id(const GPtrArray *restores, const struct restore *restore, char text[WB_WHEN_TEXT_MAX]);

/* How many undos and redos lead to the first of them: 0: a restore, odd: an undo, even: a redo. */
unsigned restore_depth(const struct restore *restore);
/* The restore that all of these undo and redo. */
const struct restore *restore_base(const struct restore *restore);

/* "restore", "undone" (a restore or an undo that has no effect any more), "undo", "redo"; "undo?": one of
 * these, but it is not known of which restore. */
const char *restore_state(const struct restore *restore);
