/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

/*
 * Checksums of deleted files, so that damage to them is refused like damage to a record.
 *
 * They are made in the background, of files that nobody can change any more: the graveyard has the only link, and no
 * node of the mount is left. Whoever brings such a file back to a name withdraws them first. They are entries of the
 * manifest (manifest.h), one for each block.
 */

#include "store/graveyard/bundle.h"

struct wb_body_summing {
    bool (*in_use)(void *data, struct wb_object object); /* may be NULL: nothing is */
    bool (*stop)(void *data);                            /* may be NULL             */
    void *data;
    uint64_t bytes; /* so many more may be read; with `stop`, the last file may take more */
};

/* Makes checksums of what has none, until `bytes` are used up or `stop` says so. */
void wb_body_sums_make(struct wb_store *store, struct wb_body_summing *summing);

/* Compares [offset, offset + length) of the file with its checksums: 0, also if there are none; -EBADMSG or -errno. */
int wb_body_sums_check(struct wb_body *body, uint64_t offset, size_t length);

/* Compares all of it. */
int wb_body_sums_check_all(const struct wb_store *store, struct wb_object object);
