/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

/*
 * What an erasure is about: the objects whose past goes, the catalogs that tell of them, and the
 * processes that made them. Gathered completely, by reading only, before anything is touched.
 *
 * Memory grows with the number of objects erased, and with nothing else.
 */

#include "history/history.h"
#include <glib.h>

/* What happens to an object. */
enum wb_doom {
    WB_DOOM_PAST,      /* all of its past goes; if it is somewhere now, it stays without */
    WB_DOOM_ELSEWHERE, /* a directory that lives on at another place: only what was here tells of it no more */
};

struct wb_doomed {
    struct wb_object object;
    enum wb_doom doom;
    bool is_dir;
    bool here;    /* it is at the erased name, or below it, now, and stays */
    bool touched; /* records about it were in catalogs that go on */
    bool needed;  /* a record of after the moment tells of it     */
    uint32_t uid; /* its owner, as far as the records tell */
};

struct wb_erasure {
    struct wb_history *history;
    struct wb_store *store;
    unsigned flags;
    struct wb_object dir;           /* the name that is erased: dir/name */
    const char *name;
    int64_t before;                 /* only what was before that moment goes; 0: all */
    bool present;                   /* something has the name now, and keeps it */
    bool blind;                     /* a catalog is damaged: not all that tells of the objects is known */
    GHashTable *objects;   /* struct wb_object -> struct wb_doomed                              */
    GPtrArray *order;      /* directories among them (borrowed), those above before those below */
    GHashTable *catalogs;  /* struct wb_object: other catalogs to be written anew               */
    GHashTable *actors;    /* indices of the processes that made what goes                      */
    GHashTable *departures; /* names that erased objects left for others: "when:directory:name" */
};

int wb_erasure_init(struct wb_erasure *erasure, struct wb_history *history, struct wb_spot *dir,
                    const char *name, unsigned flags);
void wb_erasure_deinit(struct wb_erasure *erasure);

/* Finds the objects. 0, -EISDIR, or -errno. */
int wb_erasure_gather(struct wb_erasure *erasure, struct wb_spot *dir);

/* Whether all that goes, and not only what has the name at last, is that user's (0: anybody's): 0,
 * -EPERM or -errno. */
int wb_erasure_permit(const struct wb_erasure *erasure, uint32_t uid);

struct wb_doomed *wb_erasure_find(const struct wb_erasure *erasure, struct wb_object object);

/* Whether what that record tells goes, if it tells of what is erased. */
static inline bool wb_erasure_reaches(const struct wb_erasure *erasure, const struct wb_record *record)
{
    return erasure->before == 0 || record->when <= erasure->before;
}

/* Whether a file is anywhere but in the graveyard: 1, 0 or -errno. In doubt it is. */
int wb_erasure_lives_on(const struct wb_erasure *erasure, struct wb_object object);

/*
 * That a file was nowhere but in the graveyard is known by its being there: so that is written down before it is taken
 * away, for who does the same again after a crash. Forgotten again when nothing is left of it, and no record. 0 or
 * -errno.
 */
int wb_erasure_note_gone(struct wb_erasure *erasure, struct wb_object object);
int wb_erasure_forget_gone(struct wb_erasure *erasure, struct wb_object object);

/* ---- what tells of them (erase_judge.c) ------------------------------------------------------- */

/* Goes through every catalog and undo log concerned: catalogs, actors, departures, touched. */
int wb_erasure_survey(struct wb_erasure *erasure);

/* ---- catalogs (erase_catalog.c) ---------------------------------------------------------------- */

/* Writes the catalog of `dir` anew without what is erased. For the catalog of the name itself, `forget` ends it with
 * a record that says that the name's present begins now. */
int wb_erasure_rewrite_catalog(struct wb_erasure *erasure, struct wb_object dir, bool forget);

/*
 * Copies the records of a log that are later than `after`, those of a catalog as its trial judges them (NULL: as they
 * are). Where a damaged record was, a GAP says so.
 */
struct wb_trial;
struct wb_rewrite;
int wb_erasure_copy(struct wb_erasure *erasure, struct wb_trial *trial, int fd, int64_t after,
                    struct wb_rewrite *rewrite);

/* ---- up to a moment (erase_before.c) ------------------------------------------------------------ */

/* Moves the moment back before creations that were under way at it. */
int wb_erasure_settle_moment(struct wb_erasure *erasure);

/* After the survey: -EUCLEAN where a deleted file would go of which is not known whether a newer state needs it. */
int wb_erasure_see(const struct wb_erasure *erasure);

/* 1: states of the moment or later need the object, so that it is cut there; 0: it goes as a whole; or -errno. */
int wb_erasure_is_cut(const struct wb_erasure *erasure, const struct wb_doomed *doomed);

/* Takes away what is in an image and no record of the log has, to the byte. *bytes grows by that. */
int wb_erasure_clean_image(struct wb_store *store, struct wb_object object, uint64_t *bytes);

/* Cuts an object's own log, and what is in its image. *bytes grows by what that frees. */
int wb_erasure_cut_file(struct wb_erasure *erasure, const struct wb_doomed *doomed, uint64_t *bytes);
int wb_erasure_cut_catalog(struct wb_erasure *erasure, const struct wb_doomed *doomed, uint64_t *bytes);

/* ---- actors (erase_actors.c) ------------------------------------------------------------------- */

/* Takes the arguments from the commands of erasure->actors; every record keeps its place. */
int wb_erasure_rewrite_actors(struct wb_erasure *erasure);
