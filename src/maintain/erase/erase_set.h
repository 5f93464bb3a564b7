/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

/*
 * The set of an erasure: the objects whose past is erased, the catalogs with records of them, and the
 * processes that made them. Gathered completely, by reading only, before anything is touched.
 *
 * Memory grows with the number of objects erased, and with nothing else.
 */

#include "history/history.h"
#include "maintain/erase/erase.h"
#include <glib.h>
#include <sys/stat.h>

/* What happens to an object. */
enum wb_erase_scope {
    WB_ERASE_SCOPE_ALL,  /* all of its past is erased; if it exists now, it remains, without a past */
    WB_ERASE_SCOPE_HERE, /* a directory that lives on at another place: only the records of it here are erased */
};

/* Blocks that a file occupies on the disk, in bytes, of which others share some; and how many names it has. */
struct wb_erase_blocks {
    uint64_t disk, shared;
    nlink_t links;
};
struct wb_erase_blocks wb_erase_blocks(int dir_fd, const char *path, const struct stat *st);

struct wb_erase_victim {
    struct wb_object object;
    struct wb_erased_name *by;  /* the name by which it was found first, or what it was in was */
    struct wb_object lead; /* the directory whose catalog records it by an erased name; none: it was found below one */
    enum wb_erase_scope scope;
    bool is_dir;
    bool here;    /* it is at the erased name, or below it, now, and stays */
    bool touched; /* records about it were in catalogs that live on */
    bool needed;  /* a record after the moment mentions it        */
    int64_t lost; /* when it lost a name last, by the records; 0: they do not say */
    bool kept;    /* and whether it was kept then, and not moved  */
    uint32_t uid; /* its owner, as far as the records show it */
    int lives;      /* a file that is somewhere but in the graveyard: 1, -1: it is not, 0: not looked yet */
    struct wb_left_name *left; /* names that it keeps (erase_set.c) */
    unsigned names; /* that it has now among those erased, or below them: with `here` */
    struct wb_erase_blocks blocks; /* of it now: with `here` */
};

/* A name that a file keeps. */
struct wb_left_name {
    struct wb_left_name *next; /* of the same file */
    struct wb_object dir;
    char name[];
};

/* A name that is erased. */
struct wb_erased_name {
    struct wb_revision *dir; /* borrowed, as the name is */
    const char *name;
    bool present;        /* something has the name now, and keeps it        */
    bool found;          /* something has it or had it                      */
    int refused;         /* -errno: it is none of the set, and nothing of it goes */
    GHashTable *shared;  /* struct wb_erase_victim: found by this name, too       */
    uint64_t objects;    /* that go; what several names had counts for each */
    uint64_t bytes;      /* freed; they count once                          */
    struct wb_erase_freed freed; /* filled by wb_erasure_measure */
};

/* A directory of such names: its catalog leads to what goes, so it is written anew last. */
struct wb_origin {
    struct wb_object dir;
    GHashTable *names; /* name -> struct wb_erased_name */
    bool crossed;      /* its catalog also records erased objects to which its own names do not lead */
};

struct wb_erasure {
    struct wb_history *history;
    struct wb_store *store;
    unsigned flags;
    GPtrArray *targets;             /* struct wb_erased_name                         */
    GHashTable *origins;            /* struct wb_object -> struct wb_origin     */
    int64_t before;                 /* only what was before that moment goes; 0: all */
    bool measured;                  /* the blocks of present objects are wanted */
    bool blind;                     /* a catalog is damaged: not all records of the objects are known */
    GHashTable *objects;            /* struct wb_object -> struct wb_erase_victim                              */
    GPtrArray *order;      /* directories among them (borrowed), those above before those below */
    GHashTable *catalogs;  /* struct wb_object: other catalogs to be written anew               */
    GHashTable *actors;    /* indices of the processes that made what goes                      */
    GArray *written;        /* struct wb_object: catalogs that were written anew, and not published yet */
    GHashTable *candidates; /* struct wb_left_name: names that files which stay may have */
    GHashTable *departures; /* names that erased objects left for others: "when:directory:name" */
};

void wb_erasure_init(struct wb_erasure *erasure, struct wb_history *history, unsigned flags);
void wb_erasure_deinit(struct wb_erasure *erasure);

/* One more name, which lives as long as the set does, as `dir` has to. -ENOENT: it is in the set already. */
int wb_erasure_add(struct wb_erasure *erasure, struct wb_revision *dir, const char *name);

/* Finds the objects. Names that may not go, or that nothing ever had, leave the set (`refused`: -EISDIR, -EEXIST,
 * -ENOENT). 0, or -errno for all of them. */
int wb_erasure_gather(struct wb_erasure *erasure);

/* NULL: no name of that directory is erased; or not that name. */
struct wb_origin *wb_erasure_origin(const struct wb_erasure *erasure, struct wb_object dir);
bool wb_erasure_is_name(const struct wb_origin *origin, const char *name, uint8_t length);

/* Whether all that goes, and not only what has the name at last, is that user's (0: anybody's): 0,
 * -EPERM or -errno. */
int wb_erasure_check_owner(const struct wb_erasure *erasure, uint32_t uid);

struct wb_erase_victim *wb_erasure_find(const struct wb_erasure *erasure, struct wb_object object);

/* Whether the record is old enough for the erasure (`before`; 0: every record is). */
static inline bool wb_erasure_reaches(const struct wb_erasure *erasure, const struct wb_record *record)
{
    return erasure->before == 0 || record->when <= erasure->before;
}

/* Whether a file is anywhere but in the graveyard: 1, 0 or -errno. In doubt it is. */
int wb_erasure_lives_on(const struct wb_erasure *erasure, struct wb_object object);

/* ---- how much room it frees (erase_set.c) -------------------------------------------------- */

/* Of a set that was gathered, without WB_ERASE_PRESENT where something is there. 0 or -errno. */
int wb_erasure_measure(const struct wb_erasure *erasure);

/* ---- records of them (catalog_edit.c) ---------------------------------------------------------- */

/* Goes through every catalog and undo log concerned: catalogs, actors, departures, touched. */
int wb_erasure_survey(struct wb_erasure *erasure);

/* ---- names that stay (erase_set.c) ------------------------------------------------------------- */

/* Each record of a log that is surveyed; then, before anything goes, the tree is asked which of these names there are.
 * 0 or -errno. */
void wb_erasure_note_names(struct wb_erasure *erasure, struct wb_object log, const struct wb_record *record);
int wb_erasure_find_names(struct wb_erasure *erasure);

/* Writes into the new log of a file where it is: a PLACE for each name that was found, of `when` (0: now). 0 or
 * -errno. */
struct wb_rewrite;
int wb_erasure_append_places(struct wb_erasure *erasure, const struct wb_erase_victim *victim, int64_t when,
                             struct wb_rewrite *rewrite);

/* ---- catalogs (erase_catalog.c) ---------------------------------------------------------------- */

/* Writes the catalog of `dir` anew without what is erased; of an origin, but for what its own names had. With several
 * names, it joins those that are to be published (rewrite.h). */
int wb_erasure_rewrite_catalog(struct wb_erasure *erasure, struct wb_object dir);

/* The last step for an origin: also without its names, and for each that is there, with a record that says that its
 * present begins now. */
int wb_erasure_rewrite_origin(struct wb_erasure *erasure, const struct wb_origin *origin);

/* ---- up to a moment (erase_before.c) ------------------------------------------------------------ */

/* Moves the moment back before creations that were under way at it. */
int wb_erasure_settle_moment(struct wb_erasure *erasure);

/* After the survey: -EUCLEAN where a deleted file would go of which is not known whether a newer state needs it. */
int wb_erasure_see(const struct wb_erasure *erasure);

/* 1: states of the moment or later need the object, so that it is cut there; 0: it goes as a whole; or -errno. */
int wb_erasure_is_cut(const struct wb_erasure *erasure, const struct wb_erase_victim *victim);

/* Takes away what is in an image and no record of the log has, to the byte. *bytes grows by that. */
int wb_erasure_clean_image(struct wb_store *store, struct wb_object object, uint64_t *bytes);

/* Cuts an object's own log, and the bytes of its image. Adds the freed bytes to *bytes. */
int wb_erasure_cut_file(struct wb_erasure *erasure, const struct wb_erase_victim *victim, uint64_t *bytes);
int wb_erasure_cut_catalog(struct wb_erasure *erasure, const struct wb_erase_victim *victim, uint64_t *bytes);

/* ---- actors (erase_actors.c) ------------------------------------------------------------------- */

/* Takes the arguments from the commands of erasure->actors; every record keeps its place. */
int wb_erasure_rewrite_actors(struct wb_erasure *erasure);
