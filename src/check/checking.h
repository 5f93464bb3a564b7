/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

/*
 * One run of a check, shared by the files of this floor.
 *
 * The check reads the files of the store through its own descriptors, so that damage in one part does not prevent the
 * check of the others. Memory grows with the number of objects in the store and the tree, not with the size of history.
 */

#include "store/store.h"
#include "wayback/check.h"
#include "wayback/when.h"
#include <glib.h>

struct wb_checking {
    int src_fd, dir_fd;
    dev_t src_dev;
    int grave_fd;             /* -1: there is none yet                                           */
    int lock_fd;              /* while we alone look after the header and what else cannot be opened */
    struct wb_store *store;   /* for reading, or, where repairing, for writing; NULL: it cannot be opened */
    const char *store_path;
    unsigned flags;
    bool online;              /* somebody writes it                                              */
    bool sound;               /* the header is, so that the store can be opened                  */
    bool bound;               /* the ids are those of this tree                                  */
    struct wb_header header;
    struct wb_identities *identities; /* NULL: each inode is an object by itself                 */
    int64_t began;
    int64_t unsettled[WB_INFLIGHT_SLOTS]; /* changes that a crash left under way                 */
    unsigned unsettled_count;
    GHashTable *objects;      /* struct wb_known                                                 */
    GHashTable *bundles;      /* inode numbers of those looked at; NULL: none yet                 */
    GArray *lost;             /* struct wb_manifest_entry: logs to be mended; NULL: none          */
    GHashTable *aborted;      /* `when` of changes that never happened: int64_t                  */
    int64_t beyond;           /* `when` of the newest record of a later version                  */
    bool damaged;             /* the content of some records is not known                        */
    bool forgotten;           /* a log has a FILLER: records of older states were deleted        */
    GHashTable *actors;       /* offsets / 8 of actors; NULL: not to be trusted                  */
    uint64_t actors_end;
    uint8_t *payload;         /* WB_PAYLOAD_MAX bytes                                            */
    uint8_t *copy;            /* the same, of an INDEX                                           */
    bool stopped;
    const struct wb_check_listener *listener;
    struct wb_check_result result;
};

/* The facts about an object. */
struct wb_known {
    struct wb_object object;
    uint32_t names;         /* in the tree                              */
    uint8_t files;          /* bit 1 << enum wb_object_file             */
    bool is_dir;            /* in the tree                              */
    bool summed;            /* the manifest has checksums of it as a deleted file */
    bool mentioned;         /* by a record of some other log            */
    bool named;             /* a record says that some name was its     */
    bool is_file;           /* a regular file, in the tree; then:       */
    uint64_t size;          /* also of a deleted one                    */
    int64_t mtime, ctime;
    int64_t newest;         /* `when` of the newest record about it     */
    int64_t lost;           /* of the newest that took a name of a regular file away, and its size then */
    uint64_t lost_size;
    int64_t resized;        /* of the newest with the size after its change, 0: none; and that size */
    uint64_t size_after;
    int64_t beyond;         /* of the newest in its own log that is of a later version */
    struct wb_object dir;   /* a directory that has a name of it */
    bool spread;            /* several have                      */
    char *path;             /* one of its names, from the root          */
};

/* A table of struct wb_known by object. */
GHashTable *wb_check_objects_new(void);
/* That of the object, made if need be; NULL where memory is short. */
struct wb_known *wb_check_known(struct wb_checking *checking, struct wb_object object);

/*
 * Whether a time of the tree is so much later than `newest` that the change was not the recorded one: between the
 * record and the change itself a process may be stopped, or a disk be slow. Both may be any number.
 */
static inline bool wb_check_is_beyond(int64_t time, int64_t newest)
{
    return time > newest && (uint64_t)time - (uint64_t)newest > 60 * WB_WHEN_SECOND;
}

/* ---- findings (finding.c) --------------------------------------------------------------------- */

/* The place of a finding; all may be left out. */
struct wb_check_where {
    const char *file;
    const char *path;
    uint64_t from, to;
};

void wb_check_report(struct wb_checking *checking, enum wb_check_state state, const char *code,
                     struct wb_check_where where, const char *remedy, const char *format, ...)
    __attribute__((format(printf, 6, 7)));

/* So many files and bytes more. False: stop. */
bool wb_check_progress(struct wb_checking *checking, uint64_t files, uint64_t bytes);

/* Whether what costs nothing, or, with `all`, what takes a decision, is to be mended. */
bool wb_check_mends(const struct wb_checking *checking, bool all);

/* Reports a finding that could be repaired: as REPAIRED if `r` is 0, else as WRONG with the reason. */
void wb_check_report_mended(struct wb_checking *checking, int r, const char *code, struct wb_check_where where,
                            const char *done, const char *format, ...) __attribute__((format(printf, 6, 7)));

/* A change that was under way when the store was left. */
bool wb_check_is_unsettled(const struct wb_checking *checking, int64_t when);

/* wb_object_stat, in the tree or the graveyard. */
int wb_check_stat(const struct wb_checking *checking, int dir_fd, const char *name, struct wb_object *object,
                  struct wb_attrs *attrs, struct stat *st);

/* ---- its parts: 0, or -errno where looking itself failed --------------------------------------- */

/* The store as a directory: its permissions, header, inflight, leftover files (home.c). */
int wb_check_header(struct wb_checking *checking, struct wb_error *why);
int wb_check_inflight(struct wb_checking *checking);
int wb_check_home(struct wb_checking *checking);

/* Files with another name outside of the store. Before anything is opened for writing, which such files refuse. */
int wb_check_links(struct wb_checking *checking);

/* Names `path` below the store: a replacement that was never finished; a file with another name elsewhere. */
void wb_check_stale(struct wb_checking *checking, int dir_fd, const char *name, const char *path);

/* A log (log.c). */
enum wb_check_log_kind { WB_CHECK_UNDO, WB_CHECK_CATALOG, WB_CHECK_ACTORS, WB_CHECK_SNAPSHOTS };
int wb_check_log(struct wb_checking *checking, const char *path, enum wb_check_log_kind kind,
                 struct wb_object object);

/* The content of deleted files that is packed: of all in a bundle, where one of its names is met first (bundle.c). */
int wb_check_bundle(struct wb_checking *checking, const char *path, struct wb_object object, bool needed);

/* An INDEX against the records it is of: 1, 0, or -errno. `records`: struct wb_check_span. */
struct wb_check_span {
    uint64_t offset;
    uint32_t body_length;
};

/* objects/, in the store and in the graveyard (objects.c). */
int wb_check_objects(struct wb_checking *checking);

/* The tree: which objects it has, and whether catalogs and names agree (tree.c, names.c). */
int wb_check_tree(struct wb_checking *checking);
/* *ret_newest: of each name the `when` of its newest record (int64_t), or NULL where there is no catalog. */
int wb_check_names(struct wb_checking *checking, int dir_fd, struct wb_object dir, const char *path,
                   GHashTable **ret_newest);

/* What the tree and all logs together say of each object (orphans.c). */
int wb_check_orphans(struct wb_checking *checking);

/* Content that changed behind the mount (external.c): the records say so as they are met, then it is looked for. */
void wb_external_note(struct wb_checking *checking, struct wb_object object, const struct wb_record *record);
void wb_external_note_unknown(struct wb_checking *checking, struct wb_object object, const struct wb_record *record);
int wb_check_external(struct wb_checking *checking);

/* Whether a crash left an open write session of the object: growth in it has no record until the next daemon ends
 * it. */
bool wb_external_is_staged(const struct wb_checking *checking, struct wb_object object);

/* Gaps that are still open (gaps.c). */
int wb_check_gaps(struct wb_checking *checking);

/*
 * Checks the manifest, and the logs by it (manifest.c). Repairs wait until the tree was walked, which shows where
 * directories are.
 */
int wb_check_manifest(struct wb_checking *checking);
int wb_check_manifest_mend(struct wb_checking *checking);

/* The timeline (times.c). */
int wb_check_timeline(struct wb_checking *checking);

/* Binds the store to the tree as it is now; `dry`: only reports (rebind.c). 0, or -errno with a line. */
int wb_check_rebind(struct wb_checking *checking, bool dry, struct wb_error *why);

/* ---- mending (mend.c) -------------------------------------------------------------------------- */

/* Moves dir_fd/path to `lost`. */
int wb_lost_move(struct wb_checking *checking, int dir_fd, const char *path);

/* Copies bytes [from, to) of the file there. */
int wb_lost_copy(struct wb_checking *checking, int fd, const char *path, uint64_t from, uint64_t to);

/* Copies the bytes there, then cuts them off. */
int wb_mend_cut(struct wb_checking *checking, const char *path, uint64_t from, uint64_t to);

/* Writes the trailer that the record's head asks for. */
int wb_mend_trailer(struct wb_checking *checking, const char *path, const struct wb_record *record);

/* Replaces a file by a copy of itself, with one link. */
int wb_mend_links(struct wb_checking *checking, const char *path);

/* Writes bytes over those at `offset` of a file, which go to `lost`. */
int wb_mend_file(struct wb_checking *checking, const char *path, uint64_t offset, const void *data, size_t length);

/* The same, at an offset of a log. */
int wb_mend_bytes(struct wb_checking *checking, const char *path, uint64_t offset, const void *data, size_t length);
