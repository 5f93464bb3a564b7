/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

/* What the files of this floor share. */

#include "history/history.h"
#include "history/log_cursor.h"
#include "time/ctime_clock.h"
#include "wayback/when.h"
#include <glib.h>
#include <stdatomic.h>
#include <sys/stat.h>

struct wb_departures_cache;
struct wb_listing;
struct wb_listing_cache;
struct wb_dirfd_cache;
struct wb_rights_cache;

struct wb_history {
    struct wb_store *store;
    struct wb_dirfd_cache *dirfd_cache;
    struct wb_listing_cache *listings;
    struct wb_departures_cache *departures;
    struct wb_rights_cache *rights;
    char at_sign;                       /* the mark in NAME@TIME */
    int64_t accepted_when;              /* wb_history_accept_gaps; 0: no gap is accepted */
    const struct wb_open_gap *accepted;
    size_t accepted_count;
};

/* ---- why a state cannot be rebuilt (history_error.c, log_scan.c) ------------------------------ */

/* Sets this thread's line; returns `error`, so that it can end a function. */
int wb_history_fail(int error, const char *format, ...) __attribute__((format(printf, 2, 3)));

/*
 * Waits (a second at most) until no change of `when` or older is under way in this process, so that
 * the state at `when` is one that nothing will still alter.
 */
void wb_history_wait_own(struct wb_history *history, int64_t when);

/*
 * The last call of each function that returns a state at `when`: `r`, or -EIO (and a line) if `when` is before the
 * horizon. Called last, since the data of such states is deleted while it is read.
 */
ssize_t wb_history_end(struct wb_history *history, int64_t when, ssize_t r);

/* ---- scans: the records of one log after a moment, newest first (log_scan.c) ----------------- */

struct wb_log_scan {
    struct wb_log_cursor source;
    struct wb_object object;
    enum wb_object_file file;
    int64_t when;
    bool given; /* the record in view was returned */
    unsigned left_out; /* GAPs that were passed over: an earlier state was recorded as a whole before each */
    bool doubts;  /* set by a caller that lowers `when` to confirm an entry: then no GAP is passed over */
    bool through; /* set after opening, if less is enough: a GAP of a power cut is returned, and ends nothing */
};

/* -EIO, and the reason, where the log lacks a change and no record says so yet (store/cache/gaps.h); else 0. */
int wb_history_check_gaps(const struct wb_history *history, struct wb_object object, enum wb_object_file file,
                          int64_t when);

/* The same, and also -EIO where the log has lost its end to a power cut or to damage. */
int wb_history_check_log(const struct wb_history *history, struct wb_object object, enum wb_object_file file,
                         int64_t when);

/* A log that does not exist is an empty one. 0 or -errno. */
int wb_log_scan_open(struct wb_log_scan *scan, const struct wb_history *history, struct wb_object object,
                     enum wb_object_file file, int64_t when);
void wb_log_scan_close(struct wb_log_scan *scan);

/*
 * The next older record with `when` > scan->when; valid until the next call. 0, WB_END, or -errno;
 * -EIO (with a line) at a damaged record or a gap, behind which nothing is certain. A power cut takes the end of a
 * log: older records are still valid, and only state that none of them contains is unknown.
 */
int wb_log_scan_next(struct wb_log_scan *scan, const struct wb_record **ret);

static inline bool wb_log_scan_is_cut(const struct wb_record *record)
{
    return record->type == WB_REC_GAP && wb_gap_is_partial(record->gap.reason);
}
/* Records of the log were lost to damage, as the manifest says. */
int wb_history_fail_damaged(struct wb_object object, enum wb_object_file file);
/* -EIO, and a line: records are missing for that reason (enum wb_gap). */
int wb_history_fail_gap(unsigned reason);

/*
 * Whether what has that ctime was not changed, renamed or linked after `when`: then no record of that is missing. The
 * kernel's clock for ctime lags behind by a tick, 10 ms at most.
 */
#define WB_CLOCK_LAG (20 * 1000 * 1000)

static inline bool wb_rested_since(int64_t ctime, int64_t when)
{
    return wb_ctime_end(ctime) < when - WB_CLOCK_LAG;
}

/* Smaller values are generations (object_stat.c) or made up (rebind_tree.c), not times. */
static inline bool wb_has_birth(struct wb_object object)
{
    return object.birth > UINT32_MAX;
}

/* Whether the object's own birth says it did not exist at `when`. */
static inline bool wb_born_after(struct wb_object object, int64_t when)
{
    return wb_has_birth(object) && object.birth > when;
}

/*
 * Whether a record has to confirm that a name had the object at scan->when, because it may have been made later. As a
 * rule a later name has its record; an object made while nothing was recorded is known by its birth only.
 */
static inline bool wb_log_scan_doubts(const struct wb_log_scan *scan, struct wb_object object)
{
    return wb_born_after(object, scan->left_out > 0 ? scan->when - WB_CLOCK_LAG : scan->when);
}

/*
 * The ctime that the object had at `when`, as far as its own log says; else `*ctime` stays. 1, 0 where records later
 * than `when` are missing from that log, or -errno.
 */
int wb_own_ctime(struct wb_history *history, struct wb_object object, uint32_t mode, int64_t when, int64_t *ctime);

/* After WB_END: the GAP that ended the scan, since the changes it stands for came before scan->when, or NULL. */
static inline const struct wb_record *wb_log_scan_last_gap(const struct wb_log_scan *scan)
{
    return scan->source.full && wb_log_scan_is_cut(&scan->source.head) ? &scan->source.head : NULL;
}

/* The slot of `name` in a NAME record, or NULL. */
const struct wb_slot *wb_log_scan_slot(const struct wb_record *record, const char *name);

/* ---- revisions (state/revision.c) ------------------------------------------------------------ */

/*
 * What a walk over the parent's catalog found out about the object's attributes at T. Every `when` in a
 * log is greater than those before it, so neither part can become wrong; unless the log
 * is replaced, which its identity reveals.
 */
struct wb_hint {
    bool valid;
    bool found;           /* the earliest record after T is of `when` and has `attrs`   */
    struct wb_object log; /* identity of the log's file                                 */
    uint64_t seen;        /* !found: no record about it lies below this offset          */
    int64_t when;
    int64_t stage;        /* when the stage began that this record ended, or 0          */
    struct wb_attrs attrs;
};

struct wb_revision {
    atomic_uint references;
    struct wb_object object;
    uint32_t type;
    int64_t when;
    struct wb_revision *parent; /* NULL for the root */
    struct wb_hint hint;
    char name[];
};

/* Takes a reference to `parent`; T is parent's. 0 or -ENOMEM. */
int wb_revision_new(struct wb_revision *parent, const char *name, struct wb_object object, uint32_t mode,
                    struct wb_revision **ret);

/*
 * The same for an object that was in `dir` by a catalog. -EIO if it is a directory that is above `dir` at the same
 * moment: no tree is like that, and a walk over it would never end.
 */
int wb_revision_below(struct wb_revision *dir, const char *name, struct wb_object object, uint32_t mode,
                      struct wb_revision **ret);

/* An object's birth may be a little later than the `when` of its record. */
#define WB_BIRTH_SLACK (60 * WB_WHEN_SECOND)

/*
 * As wb_revision_attrs; `ret_since`: when that state began to count, if a stage was under way at the moment of the
 * revision (capture/stage.h), else that moment.
 */
int wb_revision_attrs_since(struct wb_history *history, struct wb_revision *revision, struct wb_attrs *ret,
                            int64_t *ret_since);

/* Names of the root that are ours (state/listing.c). */
bool wb_listing_hides(const struct wb_revision *dir, const char *name);

/* ---- places (resolve.c) ---------------------------------------------------------------------- */

/*
 * Finds the object as it is now: an O_PATH descriptor in *ret_fd (-1 for WB_LOST) and, for WB_LINKED, its
 * path (g_free); ret_path may be NULL, then the graveyard is looked at before catalogs are walked,
 * and WB_LINKED is also returned for an object in it.
 * enum wb_link_state or -errno; WB_LOST only if the records say that it was removed.
 */
int wb_resolve(struct wb_history *history, struct wb_revision *revision, int *ret_fd, char **ret_path);

/* 0, or -EIO if the object, whose ctime is `ctime` now, was changed without a record after `when`, and no GAP says so
 * yet. */
int wb_check_seen(struct wb_history *history, const struct wb_revision *revision, int64_t ctime, int64_t when);

/*
 * The same for the present file of a revision in a stage that began at `stage`. A file that no longer exists is judged
 * by its records: 0.
 */
int wb_check_stage_seen(struct wb_history *history, struct wb_revision *revision, int64_t stage);

/* Directories found lately (dirfd_cache.c): a descriptor of the caller's own, or -1. Thread-safe. */
struct wb_dirfd_cache *wb_dirfd_cache_new(void);
struct wb_dirfd_cache *wb_dirfd_cache_free(struct wb_dirfd_cache *dirfd_cache);
int wb_dirfd_cache_get(struct wb_dirfd_cache *dirfd_cache, struct wb_object object);
void wb_dirfd_cache_put(struct wb_dirfd_cache *dirfd_cache, struct wb_object object, int fd);

/* ---- the way of an object, from name to name (rename_chain.c) ----------------------------------- */

/* It got there at `when`. */
struct wb_rename_hop {
    struct wb_object dir;
    char name[WB_NAME_MAX + 1];
    int64_t when;
    int64_t lost;   /* hops[0], if the way ends in the graveyard: when it lost that name,      */
    uint32_t links; /* and how many names it had until then                                   */
};

/* From hops[0] on: the last two hops by `until`. 1: it ends in the graveyard; 0: at hops[0]; or -errno. */
int wb_rename_chain_follow(struct wb_history *history, struct wb_object object, enum wb_object_file file, int64_t until,
                           struct wb_rename_hop hops[2]);

/*
 * From (dir, name), where `object` was at *when, to where it was at `until`. 0, WB_ABSENT where it
 * was in the graveyard then, or -errno.
 */
int wb_resolve_forward(struct wb_history *history, struct wb_object object, int64_t until, struct wb_object *dir,
                       char name[WB_NAME_MAX + 1], int64_t *when);

/* ---- listings: what a past directory held (listing.c, past_dir.c) ------------------------------ */

struct wb_listing_entry {
    char *name;
    struct wb_object object;
    uint32_t mode;
    int64_t ctime; /* by the records of names: it had no later one at T   */
    bool doubtful; /* while it is built: born after T as its inode has it */
};

struct wb_listing {
    atomic_uint references;
    struct wb_object dir;
    int64_t when;
    GArray *entries;      /* of wb_listing_entry, in byte order of names  */
    struct wb_object log; /* identity of the catalog it was replayed from */
    uint64_t records;     /* how many records were replayed               */
    size_t names;         /* bytes of all names                           */
    struct wb_hint *hints; /* one for each entry, once an entry was asked for; may be NULL */
    bool hinted;
    pthread_mutex_t lock; /* of the hints                                 */
};

int wb_listing_open(struct wb_history *history, struct wb_revision *dir, struct wb_listing **ret);
struct wb_listing *wb_listing_unref(struct wb_listing *listing);
/* Bytes of memory that it takes. */
size_t wb_listing_size(const struct wb_listing *listing);
int wb_listing_revision(struct wb_history *history, struct wb_listing *listing, struct wb_revision *dir, size_t index,
                        struct wb_revision **ret);
/* Index of `name`, or -1. */
ssize_t wb_listing_find(const struct wb_listing *listing, const char *name);

/* ---- listings that are kept (listing.c) -------------------------------------------------- */

struct wb_listing_cache *wb_listing_cache_new(void);
struct wb_listing_cache *wb_listing_cache_free(struct wb_listing_cache *cache);
struct wb_listing *wb_listing_cached(struct wb_history *history, const struct wb_revision *dir);

/* Whether a directory for one name of which that many records were walked had better be listed. */
bool wb_listing_is_worthwhile(struct wb_history *history, const struct wb_revision *dir, unsigned records);

/* Identity of the catalog's file; WB_OBJECT_NONE where there is none. */
int wb_catalog_identity(const struct wb_history *history, struct wb_object dir, struct wb_object *ret);
