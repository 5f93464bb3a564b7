/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

/*
 * Bundles, made: the content of deleted and replaced files in fewer bytes (graveyard/bundle.h; docs/format.md,
 * Bundles).
 */

#include "maintain/rewrite/compact.h"
#include "store/graveyard/bundle.h"
#include <glib.h>

struct wb_bundle_job {
    const struct wb_store *store;
    int to;          /* an empty file */
    GArray *members; /* of wb_bundle_member: rows, each with its newest first; extents are filled in */
    bool plain;      /* keyframes as they are */
    bool alone;      /* nothing refers to anything */
    bool may_be_waste; /* gives up with WB_BUNDLE_WASTE where it shows that nothing gets smaller */
    bool (*stop)(void *data); /* asked now and then, may be NULL: true ends it with -ECANCELED */
    void *stop_data;
};

/*
 * Writes the content of all members, as it is now, and their index; *ret_size: bytes of the file. Nothing is on the
 * disk yet, or compared.
 */
int wb_bundle_write(const struct wb_bundle_job *job, uint64_t *ret_size);

/* ---- made, and given names (bundle_make.c) --------------------------------------------------- */

/*
 * Writes a bundle, compares it with the files, and lets `ID.bundle` of all members be it, durably; what else had these
 * names is not theirs any more. The caller owns `rewriting`. `most`: it must not be longer, 0: however long. 0, or
 * WB_BUNDLE_WASTE: it would be; or -errno: then all is as before, or some have the new one and others the old one.
 * `dry`: only *ret_size.
 */
#define WB_BUNDLE_WASTE 1
int wb_bundle_make(struct wb_store *store, const struct wb_bundle_job *job, uint64_t most, bool dry,
                   uint64_t *ret_size);

/* Its steps: reads job->to again, and compares all of it with the files; 0, -EBADMSG, or -errno. */
int wb_bundle_verify(const struct wb_bundle_job *job);
/* `ID.bundle` of all members becomes that file. The caller owns `rewriting`, and syncs. */
int wb_bundle_give_names(struct wb_store *store, int fd, const GArray *members);

/* Leftovers of a crash: names of a bundle that nobody looks for. */
void wb_bundle_sweep(struct wb_store *store);

/* ---- forgotten (bundle_forget.c) ------------------------------------------------------------- */

GHashTable *wb_bundle_objects_new(void); /* a set of struct wb_object (g_memdup2) */

/*
 * Removes the content of these objects from all bundles: those that other objects need are written anew without it. The
 * caller removes their own remaining names of bundles (ID.bundle, ID.bundle-old), after the files themselves, and owns
 * `rewriting`. 0 or -errno.
 */
int wb_bundle_forget(struct wb_store *store, GHashTable *objects);

/* Those whose `ID.bundle-old` is all that is left: the content they have there goes, and that name. */
int wb_bundle_forget_old(struct wb_store *store, GHashTable *objects);

/*
 * Rewrites the bundles of these objects that have content which is no longer needed. A damaged bundle is left as it is.
 * As wb_bundle_forget, and -ECANCELED: stop was requested (`stop` may be NULL), or another thread waits for
 * `rewriting`; a later call does not repeat finished work.
 */
int wb_bundle_refresh(struct wb_store *store, GHashTable *objects, bool (*stop)(void *data), void *data);

/*
 * Whether the bundle that is this inode has the content of a deleted file: 1, 0 or -errno. Where a crash left the name
 * and no file, the name goes. The caller owns `rewriting`.
 */
int wb_bundle_needs(struct wb_store *store, struct wb_object object, ino_t ino);

/* Removes ID.bundle and ID.bundle-old. 0 or -errno. */
int wb_bundle_drop(struct wb_store *store, struct wb_object object);

/* ---- what was lost from a directory (bundle_bodies.c) ---------------------------------------- */

struct wb_bundle_body {
    struct wb_bundle_member member;
    struct timespec mtime, ctime; /* as the inode has them */
    uint64_t taken; /* bytes of the file on the disk */
    ino_t bundle;   /* that it is packed in; 0: it is not */
    bool shared;    /* its extents are those of the present file */
};

struct wb_bundle_chain {
    char *name;
    uint64_t id;
    GArray *bodies; /* of wb_bundle_body, in the order they were lost in */
    unsigned fresh; /* so many are not packed */
};

struct wb_bundle_gather {
    struct wb_store *store;
    struct wb_object dir;
    int64_t before;   /* lost before this moment */
    const char *only; /* NULL: whatever the name */
    bool (*in_use)(void *data, struct wb_object object); /* may be NULL */
    void *in_use_data;
    GHashTable *taken; /* files that have their turn already, in another directory; NULL: none */
    /* filled */
    GPtrArray *chains; /* of wb_bundle_chain, by name */
    GHashTable *old; /* wb_bundle_objects_new: with a bundle that is not theirs any more */
};
int wb_bundle_gather(struct wb_bundle_gather *gather);

/* ---- one with the present (bundle_bodies.c) ----------------------------------------------------- */

/* Bodies that are not packed, and the same as what has the row's name now, are `shared`, and not `fresh` any more. */
struct wb_bundle_share {
    struct wb_bundle_gather *gather;
    bool (*stop)(void *data); /* asked before each step */
    void *stop_data;
    const int *dir_fd; /* the directory, if it is known; NULL: it is looked for */
    struct wb_catalog_places *places; /* for that; may be NULL */
};
/* 0, also where the file system cannot share; or -ECANCELED. Owns nothing. */
int wb_bundle_share(const struct wb_bundle_share *share);

/* ---- several at a time (bundle_batch.c) ------------------------------------------------------- */

/* What one bundle is made of. */
struct wb_bundle_set {
    unsigned turn;       /* wb_store.rewrites when that was found out */
    GArray *members;     /* as in wb_bundle_job */
    GArray *fresh;       /* of wb_bundle_body: those that are emptied, */
    GArray *packed;      /* and those that have a bundle already, with only their object and its inode; */
    GPtrArray *replaced; /* which is open here, so that no other gets that inode */
    uint64_t old_size;
};
void wb_bundle_set_init(struct wb_bundle_set *set);
void wb_bundle_set_deinit(struct wb_bundle_set *set);

struct wb_bundle_batch *wb_bundle_batch_new(struct wb_store *store, struct wb_compact *compact);
struct wb_bundle_batch *wb_bundle_batch_free(struct wb_bundle_batch *batch);

/*
 * Writes one of them. Takes the content of *set, which is empty then, and counts it in compact->bodies. 0,
 * WB_BUNDLE_WASTE, or -errno.
 */
int wb_bundle_batch_add(struct wb_bundle_batch *batch, const struct wb_bundle_job *job, struct wb_bundle_set *set,
                        uint64_t most);
bool wb_bundle_batch_is_full(const struct wb_bundle_batch *batch);

/* With the right to write anew, the content durably in its bundle: 1: it is empty now; 0: it is not what it was, and
 * stays as it is; or -errno. */
int wb_bundle_empty(struct wb_store *store, const struct wb_bundle_body *body);

/* The files that are emptied when it is committed. A file that was restored and lost again is in catalogs of several
 * directories. */
GHashTable *wb_bundle_batch_taken(const struct wb_bundle_batch *batch);

/* None of them: as if they had not been added. */
void wb_bundle_batch_drop(struct wb_bundle_batch *batch);

/* All that were added: in use, and their files emptied, durably; then there are none. 0; -ECANCELED: of some, somebody
 * brought back or forgot something since, and they are as before; or -errno. */
int wb_bundle_batch_commit(struct wb_bundle_batch *batch);
