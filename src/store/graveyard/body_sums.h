/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

/*
 * Checksums of deleted files, so that damage to them is detected like damage to a record.
 *
 * A background thread computes them, for files that no process can change any more: the graveyard has the only link,
 * and no node of the mount is left. Code that gives such a file a name again withdraws them first. They are entries of
 * the manifest (manifest.h), one for each block.
 */

#include "store/graveyard/bundle.h"

struct wb_body_summing {
    bool (*in_use)(void *data, struct wb_object object); /* may be NULL: no object is in use */
    bool (*stop)(void *data);                            /* may be NULL             */
    void *data;
    uint64_t bytes; /* limit of bytes to read; with `stop`, the last file may exceed it */
};

/* Computes missing checksums, until `bytes` are used up or `stop` returns true. */
void wb_body_sums_make(struct wb_store *store, struct wb_body_summing *summing);

/* Compares the whole file. */
int wb_body_sums_check_all(const struct wb_store *store, struct wb_object object);
