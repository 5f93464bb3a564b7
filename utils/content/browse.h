/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

/*
 * A directory at a time with all names that it ever had, the versions of the entry under the cursor, filters and marks,
 * as vbrowse and vweb show them. Nothing here knows of a terminal.
 *
 * Long lists are read in pieces by browse_work, which the caller repeats while no key is pressed.
 */

#include <glib.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>
#include "client/control.h"
#include "client/past_path.h"
#include "common/changes.h"
#include "common/mount.h"

struct browse_entry {
    char *name;     /* in the directory; of a result of a search: the path below it             */
    mode_t mode;
    uint64_t size;
    int64_t time;   /* the last modification; of a name that is gone: when it ended              */
    int64_t first;  /* since when the name exists; 0: since before the history                   */
    int64_t ended;  /* 0: it is there at the time of the directory                               */
    int64_t at;     /* a time at which it can be read and restored, if no version is chosen; or 0 */
    uint32_t actor; /* the process that ended it; 0: not known                                   */
    bool moved;     /* it ended by a rename                                                      */
    bool whole;     /* `at` is before its removal began (browse_find_whole)                      */
    bool tagged;    /* marked by the user                                                        */
};

enum browse_mark { BROWSE_SAME, BROWSE_NEW, BROWSE_CHANGED, BROWSE_DELETED, BROWSE_MOVED };

/* The names that are gone and are shown. Programs that save by renaming leave many that moved away. */
enum browse_gone { BROWSE_GONE_DELETED, BROWSE_GONE_ALL, BROWSE_GONE_NONE, BROWSE_GONE_MODES };

/* A directory on the way of the user. */
struct browse_level {
    char *path;     /* plain, relative to the mount                                              */
    char *source;   /* where it is found: `path`, or a path with a time in it                    */
    int64_t moment; /* WB_WHEN_PRESENT, or the time that is shown                                */
    bool gone;      /* it is not there at the time that the user chose, but was at `moment`      */
    char *below;    /* the entry that the user went into; NULL: none                             */
};

struct browse_version {
    int64_t when;
    int64_t until;   /* the last time at which it was there, with the attributes that were set after it */
    uint32_t number; /* 1: the most recent; 0: a gap, or the state before the first version      */
    bool exists;     /* false: nothing is there in it                                            */
    char *operation, *size, *name, *who; /* as they can be printed                               */
};

enum browse_progress {
    BROWSE_IDLE,    /* everything that can be seen is read                                       */
    BROWSE_MORE,    /* there is more to read                                                     */
    BROWSE_WAITING, /* the daemon is not ready: try again in a moment                            */
};

struct browse {
    struct wb_place *place;
    struct wb_mount *mount; /* that of the place */
    int64_t when;           /* WB_WHEN_PRESENT, or the time that the user chose */
    GPtrArray *levels;      /* struct browse_level; the last one is shown       */

    GPtrArray *entries; /* all: struct browse_entry                             */
    GPtrArray *shown;   /* those of them that pass the filters                  */
    guint cursor;       /* in `shown`                                           */
    char *wanted;       /* the name that gets the cursor after reading; or NULL */
    struct wb_name_walk *names; /* NULL: all names are read                     */
    bool incomplete;    /* names may be missing                                 */
    size_t names_size;  /* bytes of all names                                   */

    char *name_filter, *command_filter, *search; /* NULL: none */
    enum browse_gone gone;

    int64_t since;        /* marks show changes after this time                 */
    GHashTable *changed;  /* names with such changes                            */
    struct wb_change_walk *changes;
    GHashTable *by_command; /* names that the commands of the filter changed    */
    struct wb_change_walk *commands;
    const char *command_words[2]; /* `command_filter` and NULL, for the walk    */

    GPtrArray *versions; /* struct browse_version, newest first                 */
    guint version;       /* the one under the cursor                            */
    bool version_chosen; /* the user chose it                                   */
    char *version_path;  /* the path whose versions these are; NULL: none       */
    bool version_directory;
    struct wb_save_walk *version_walk; /* NULL: all are read                    */
    guint versions_wanted;
    int64_t version_seek; /* not 0: the cursor goes to the version of this time */
    struct wb_control_version *oldest;
    int64_t newer;        /* the beginning of the version read before; 0: it cannot be said, or there is none */

    bool (*stopped)(void); /* asked while something takes long; true: the user stopped it. NULL: never */

    char *error; /* the last one, for the status line; NULL: none */
};

struct browse *browse_new(struct wb_place *place);
struct browse *browse_free(struct browse *browse);

/* ---- directories ------------------------------------------------------------------- */

/* The directory that is shown. */
struct browse_level *browse_level(const struct browse *browse);

/* Goes to the directory `path` of the mount as at `when`. False, with browse->error: it was none then. */
bool browse_go(struct browse *browse, const char *path, int64_t when);

/* Into the directory under the cursor; false: it is none. */
bool browse_enter(struct browse *browse);

/* To the directory above; false: there is none in the mount. */
bool browse_up(struct browse *browse);

/* Reads everything again. */
void browse_reload(struct browse *browse);

/* A piece of work. */
enum browse_progress browse_work(struct browse *browse);

/* Stops reading; the part that was read remains. */
void browse_stop(struct browse *browse);

/* ---- entries --------------------------------------------------------------------- */

void browse_entry_free(void *entry);

/* Begins to read the names of the directory. */
void browse_entries_begin(struct browse *browse);
enum browse_progress browse_entries_work(struct browse *browse);

/* Sorts, filters, and puts the cursor on the entry that had it, or on `wanted`. */
void browse_entries_show(struct browse *browse);

/* Directories first, then by name. For g_ptr_array_sort. */
gint browse_entry_compare(gconstpointer a, gconstpointer b);

/* Whether a name passes the filter: a part of it, without regard to case, or a pattern if it has * or ?. */
bool browse_name_matches(const char *filter, const char *name);

struct browse_entry *browse_current(const struct browse *browse);
void browse_move(struct browse *browse, int64_t steps);

/* Adds a result of a search to the end of the list. Takes it over. */
void browse_add_result(struct browse *browse, struct browse_entry *entry);

/* Before all entries of a new list. */
void browse_clear(struct browse *browse);

/*
 * A directory is removed from the inside out. Sets entry->at of a deleted one to the time before that began, so that it
 * is restored with everything that was in it. False: the user stopped it.
 */
bool browse_find_whole(struct browse *browse, struct browse_entry *entry);

/* The plain path of an entry, relative to the mount; g_free. */
char *browse_path_of(const struct browse *browse, const struct browse_entry *entry);

/* The directory in which tools run, and a path below it as they take it; g_free. */
char *browse_top(const struct browse *browse);
char *browse_word(const char *path);

/* A path of the mount for people; g_free. */
char *browse_absolute(const struct browse *browse, const char *path);

/* ---- changes ---------------------------------------------------------------------- */

void browse_changes_begin(struct browse *browse);
enum browse_progress browse_changes_work(struct browse *browse);
void browse_changes_stop(struct browse *browse);

/* Shows only what commands that contain `text` changed; NULL: everything. */
void browse_commands_begin(struct browse *browse, const char *text);

enum browse_mark browse_mark_of(const struct browse *browse, const struct browse_entry *entry);

/* The name in the directory that a change of `path` below it is about; g_free. NULL: none. */
char *browse_first_component(const char *path);

/* ---- versions (browse_versions.c) --------------------------------------------------------------------- */

/* Begins to read those of the entry under the cursor. */
void browse_versions_begin(struct browse *browse);
enum browse_progress browse_versions_work(struct browse *browse);
void browse_versions_stop(struct browse *browse);
void browse_version_move(struct browse *browse, int64_t steps);
const struct browse_version *browse_version(const struct browse *browse);

/* The state to which an entry is to be restored: of the chosen version, else that for which it stands; 0: none. */
int64_t browse_time_of(const struct browse *browse, const struct browse_entry *entry);

/*
 * One time at which all of these had the state that they are to be restored to, so that one restore will do; 0: there
 * is none; -1: the user stopped it.
 */
int64_t browse_common_time(const struct browse *browse, const GPtrArray *entries);

/* What the entry under the cursor was in a version. 0, or -errno with a line in `why`. */
int browse_version_at(const struct browse *browse, const struct browse_version *version, struct wb_moment *ret,
                      struct wb_error *why);

/* ---- errors ------------------------------------------------------------------------------------- */

void browse_fail(struct browse *browse, const char *format, ...) G_GNUC_PRINTF(2, 3);
