/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

/*
 * Compaction: the same log in fewer bytes. Nothing that can be read changes, nor does the place of any record; it can
 * be undone. The new file is written beside the log while that is appended to; then, for a moment, the log's lock is
 * held, and the file takes its name. After a crash the old or the new one is there, whole.
 */

#include "maintain/rewrite/log_edits.h"
#include "policy/compaction.h"
#include "store/directory/shard.h"
#include "store/store.h"
#include <glib.h>

struct wb_bundle_batch;
struct wb_catalog_places;

/* Of a half-written file of an older version: ID.undo + this. Now it is WB_PACK_NEW. */
#define WB_COMPACT_SUFFIX ".pack.new"

enum wb_compact_flags {
    WB_COMPACT_UNDO = 1 << 0, /* unpack                                                                 */
    WB_COMPACT_DRY = 1 << 1,  /* only say what it would bring                                           */
    WB_COMPACT_STATS = 1 << 3, /* only count                                                             */
    WB_COMPACT_IDLE = 1 << 2, /* by itself: gives up where somebody else rewrites, or the log is in use */
};

/*
 * For callers that delete history while packing (prune.h): what becomes of the log's records. `look` is called with the
 * right to write logs anew, which is not released before the new file has the log's name: more than 0 if there is
 * something to do, which is in `edits` then, and settled; 0, or -errno.
 */
struct wb_compact_forget {
    int (*look)(void *data, struct wb_object object, enum wb_object_file file, int fd);
    const struct wb_log_edits *edits;
    /* Then: more than 0 if it was done in the log itself; 0 if a new file is to be written; or -errno. `full`: a new
     * file could not be written, for want of space: 0 if it cannot be done in the log either. May be NULL. */
    int (*in_place)(void *data, struct wb_log *log, bool full);
    /* After success, and still with that right: so the log and its image were not begun anew since. May be NULL. */
    int (*done)(void *data, struct wb_object object);
    void *data;
};

struct wb_compact {
    unsigned flags;
    int64_t before;           /* records of this moment and later stay as they are; WB_WHEN_PRESENT: none do */
    bool (*stop)(void *data); /* asked now and then, may be NULL */
    void *stop_data;
    const struct wb_compact_forget *forget; /* may be NULL */
    GHashTable *tried; /* wb_tried_new: what did not get smaller, which is left as it is with WB_COMPACT_IDLE, and
                        * added; NULL: none is */
    /* Of deleted and replaced files (wb_compact_bodies): whether somebody has one open, may be NULL; */
    bool (*in_use)(void *data, struct wb_object object);
    void *in_use_data;
    /* what has a name in a directory, or (NULL) the directory itself: packed at all, and how; may be NULL: as well as
     * can be. Logs are asked for as well where wb_compact_shard packs them, if `mode_of_logs`. */
    enum wb_compact_mode (*mode)(void *data, struct wb_object dir, const char *name);
    void *mode_data;
    bool mode_of_logs;
    /* Lets others go first, for as long as it likes; called while nothing is owned, may be NULL. */
    void (*give_way)(void *data);
    void *give_way_data;
    const int *dir_fd; /* the directory that wb_compact_bodies is called for; NULL: it is looked for */
    struct wb_catalog_places *places; /* where directories are (store/object/catalog_path.h); may be NULL */
    struct wb_bundle_batch *batch; /* see wb_compact_begin; NULL: each call brings to the disk what it packed */
    const struct wb_room *reserve; /* with WB_COMPACT_IDLE: so much of the store's device stays free; may be NULL */
    /* filled */
    bool lacked_room;  /* for some there was not enough beside that */
    uint64_t logs;     /* looked at                                 */
    uint64_t changed;  /* packed, or unpacked                       */
    uint64_t packed;   /* in the end                                */
    uint64_t old_size; /* bytes of the files, before                */
    uint64_t new_size; /* and after                                 */
    uint64_t length;   /* bytes of the logs, as if none were packed */
    struct {
        uint64_t files;    /* deleted and replaced files looked at */
        uint64_t changed;  /* packed, or unpacked                  */
        uint64_t packed;   /* in the end                           */
        uint64_t old_size; /* their size before                    */
        uint64_t new_size;
        uint64_t length;   /* and would, if none were packed        */
    } bodies;
};

/*
 * While a log is packed, it exists twice, so that a reserve may cause history to be pruned, and writers may find no
 * space. Whether there is clearly enough for `size` bytes; a packing that a user requests is not limited by this.
 */
bool wb_compact_has_room(const struct wb_store *store, struct wb_compact *compact, uint64_t size);

/* Owns `rewriting`, to pack. 0; -ECANCELED: somebody else does, and for what packs by itself nobody is to wait; or
 * -EROFS. */
int wb_compact_own(struct wb_store *store, const struct wb_compact *compact);

/*
 * Compacts one log (WB_FILE_UNDO or WB_FILE_CATALOG). 0, also if there is none or it would not get smaller; -ECANCELED
 * if stop was requested, or another thread waits to prune; -EAGAIN if the log is written too fast; or -errno: then
 * nothing is changed.
 */
int wb_compact_log(struct wb_store *store, struct wb_compact *compact, struct wb_object object,
                   enum wb_object_file file);

/*
 * The files that were deleted or replaced in a directory, those with this name, or all (NULL). As wb_compact_log; it
 * owns `rewriting` for moments only.
 */
int wb_compact_bodies(struct wb_store *store, struct wb_compact *compact, struct wb_object dir, const char *name);

/*
 * Between these two calls, bodies that wb_compact_bodies packs are flushed to the disk in batches, across directories.
 * wb_compact_finish flushes the last batch; its argument `r` is the result so far, and it returns that or its own
 * failure. After -ECANCELED, all bodies that were not flushed yet are as before. The caller must not move *compact.
 */
void wb_compact_begin(struct wb_compact *compact, struct wb_store *store);
int wb_compact_finish(struct wb_compact *compact, int r);

/*
 * All logs in folder 0 to 255 of the store, of those last written in (*newer, older]: *newer becomes the younger end.
 * Half-written files of before a crash are removed.
 */
struct wb_compact_found {
    struct wb_object object;
    enum wb_object_file file;
};
int wb_compact_gather(struct wb_store *store, unsigned shard, int64_t newer, int64_t older, GArray *list);
int wb_compact_shard(struct wb_store *store, struct wb_compact *compact, unsigned shard, int64_t newer, int64_t older);
