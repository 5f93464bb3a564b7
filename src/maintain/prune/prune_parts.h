/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

/* What the files of pruning share. */

#include "maintain/bundle/bundle.h"
#include "maintain/prune/prune.h"
#include "maintain/prune/prune_limits.h"
#include "maintain/rewrite/compact.h"

/* A deleted file or directory. */
struct wb_prune_body {
    struct wb_object object;
    struct timespec ctime; /* as it was found: adding or removing a name changes it     */
    bool is_dir, needed;
    bool lost_before; /* packed: its bundle shows that it was lost before the horizon      */
    bool only_bundle; /* nothing is left of it but the name of its bundle                  */
};

struct wb_prune {
    struct wb_store *store;
    struct wb_prune_options options;
    GArray *bodies;   /* of wb_prune_body, in order of their objects */
    GArray *held;     /* descriptors of files that were removed while changes waited */
    bool more_bodies; /* than are held in memory at a time */
    GHashTable *bundles; /* objects whose bundles have content of removed files */
    struct wb_prune_limits *limits; /* with options.beyond; NULL: everything goes up to the horizon only */
    bool blind;       /* the records of a catalog are not all known: no deleted thing may be removed */
    struct wb_prune_count *count;
};

/* ---- bodies (prune_body.c) ------------------------------------------------------------------- */

/* Finds those of a shard, and sorts the ones found, which comes before the first is marked. */
int wb_prune_find_bodies(struct wb_prune *prune, unsigned shard);
void wb_prune_sort_bodies(struct wb_prune *prune);
/* Marks the body as needed: a remaining record mentions it. */
void wb_prune_need(struct wb_prune *prune, struct wb_object object);
int wb_prune_remove_bodies(struct wb_prune *prune);

/* ---- in place (prune_log.c) ----------------------------------------------------------------- */

/*
 * Turns whole records into fillers at their offsets, step by step. Steps between two SYNCs may reach the disk in any
 * order, and be interrupted at any point: a walk of the log in either direction finds sound records only, and before
 * `from` and from `to` on always the same ones.
 */
struct wb_prune_step {
    enum { WB_PRUNE_WRITE, WB_PRUNE_PUNCH, WB_PRUNE_SYNC } kind;
    uint64_t at; /* in the log, unpacked */
    uint64_t length;
    uint8_t data[WB_FILLER_SIZE]; /* of a WRITE */
};

/*
 * The steps for the records in [*from, to) of the log, some of them if there are many: *from is where the rest begins.
 * Fillers that are holes already stay as they are. 0, with no steps where nothing is to be done any more; -EBADMSG
 * where a record is damaged; or -errno.
 */
int wb_prune_place_steps(int fd, uint64_t *from, uint64_t to, GArray *steps);

/* Whether a filler's payload, or nearly all of it, is a hole. */
bool wb_prune_is_hole(int fd, const struct wb_log_bytes *bytes, const struct wb_record *filler);

/* ---- images (prune_image.c) ------------------------------------------------------------------ */

/* What records kept in an image, of those that go; and which blocks of it those that stay need. */
struct wb_prune_image {
    GArray *gone;      /* of struct wb_extent */
    GByteArray *needed; /* a bit for each block of WB_PRUNE_BLOCK */
    bool too_large;
};
#define WB_PRUNE_BLOCK 4096u

void wb_prune_image_init(struct wb_prune_image *image);
void wb_prune_image_deinit(struct wb_prune_image *image);
void wb_prune_image_note(struct wb_prune_image *image, const struct wb_record *record, bool stays);
int wb_prune_image_punch(struct wb_store *store, const struct wb_prune_image *image, struct wb_object object,
                         uint64_t *freed);

/* ---- logs (prune_log.c) ---------------------------------------------------------------------- */

int wb_prune_log(struct wb_prune *prune, struct wb_object object, enum wb_object_file file);
