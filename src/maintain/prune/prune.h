/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

/*
 * vprune: prunes history by age. States before a moment, the horizon, are not shown any more, and data that only such
 * states need is deleted; every state of the horizon and later remains as it is.
 *
 *  1. The horizon is published (wb_store_hide_before, wb_store_forget_hidden). From then on no process shows an older
 *     state, so that the other steps may be done in any order, concurrently with all other changes, and may be ended by
 *     a crash at any point: pruning again finishes them.
 *  2. The deleted things are listed.
 *  3. Log by log: records that only older states need become a FILLER of the same length, which is packed to next to
 *     nothing; no record changes its offset. Their bytes in images are punched out. A deleted thing is needed if a
 *     remaining record mentions it.
 *  4. Deleted things that are not needed are removed, with their logs.
 *
 * If some of the tree needs its history for longer than the rest, the horizon is the moment from which on all history
 * is kept, and the logs of the rest are pruned `beyond` it. Nothing is published for these: each FILLER says for its
 * log which time is not known any more. So the bytes of such a log in an image are punched after the log was replaced,
 * as in thinning: a process that reads an image checks afterwards whether the log was replaced.
 */

#include "store/store.h"
#include "wayback/when.h"
#include <sys/types.h>

/*
 * An inode's birth may be a little later than the record of it, and then it is by this record that it is known to have
 * been there: as much as the history allows for (WB_BIRTH_SLACK).
 */
#define WB_PRUNE_SLACK (60 * WB_WHEN_SECOND)

struct wb_prune_options {
    int64_t before; /* the horizon, not in the future */
    /*
     * Later than the horizon: of what neither a snapshot nor `limit` protects (prune_limits.h), the logs are forgotten
     * up to here. 0: of nothing.
     */
    int64_t beyond;
    /* Up to which moment the history of a path from the root of the tree may be forgotten. NULL: any. */
    int64_t (*limit)(void *data, const char *path, bool is_directory);
    /*
     * Beyond the horizon, only what this says of an object: the moment before which its logs may be forgotten, and
     * itself where it is deleted. NULL: all.
     */
    int64_t (*own_limit)(void *own_data, struct wb_object object);
    void *own_data;
    int64_t slack;  /* catalogs keep what is of so much time before it: WB_PRUNE_SLACK; tests make it small */
    bool hurry;     /* fast rather than thorough: rewrites remaining records only if they are the smaller part */
    bool dry_run;   /* only say what it would bring: nothing is published */
    bool (*stop)(void *data); /* asked now and then */
    /* Keeps all changes of the tree away for a moment, and lets them go on. */
    void (*own)(void *data);
    void (*release)(void *data);
    /* With the tree owned: whether somebody still has a deleted thing open. */
    bool (*in_use)(void *data, struct wb_object object);
    /* The same: a moment the state of which must stay, since somebody waits for it; 0: none. May be NULL. */
    int64_t (*pinned)(void *data);
    void *data;
};

struct wb_prune_count {
    uint64_t logs, changed;      /* logs looked at, and written anew                   */
    uint64_t log_bytes;          /* freed in logs                                      */
    uint64_t image_bytes;        /* and in images                                      */
    uint64_t bodies, body_bytes; /* deleted things that went, and the bytes they took  */
    uint64_t kept;               /* logs and deleted things left as they are for an error, see `error` */
    int error;                   /* the last of these, -errno                          */
};

struct wb_prune;

/*
 * Publishes the horizon. -EEXIST if a snapshot of a keeper (wb_snapshot_is_keepers), or of the whole tree, is of an
 * earlier moment: *ret_snapshots is the number of these, and `why` states name and moment of the oldest; nothing is
 * changed then. Earlier snapshots of other users protect what they cover: the horizon stops at the oldest of these, and
 * all other history is pruned beyond it, up to `before`.
 */
int wb_prune_begin(struct wb_prune **ret, struct wb_store *store, const struct wb_prune_options *options,
                   uint64_t *ret_snapshots, struct wb_error *why);

/* One step, number 0 to WB_PRUNE_STEPS - 1, in this order. 0; -ECANCELED: stop was requested; or -errno. */
#define WB_PRUNE_STEPS 513u
int wb_prune_step(struct wb_prune *prune, unsigned step, struct wb_prune_count *count);

struct wb_prune *wb_prune_free(struct wb_prune *prune); /* returns NULL */
