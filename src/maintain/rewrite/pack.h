/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

/*
 * A log's bytes, written packed into another file (docs/format.md, Packed logs). Which log, when, and how the file
 * takes the log's place is compact.h's business.
 */

#include "store/log/log.h"

struct wb_pack_job {
    int from; /* the log; packed already, perhaps */
    int to;   /* an empty file */
    uint64_t end;   /* pack the log's bytes up to here: the end of a record */
    int64_t before; /* and no record of this moment or later */
    bool (*stop)(void *data); /* asked now and then, may be NULL: true ends it with -ECANCELED */
    void *stop_data;
    /* May be NULL: makes other bytes of those of the log at `offset`. What is packed already is packed again then, and
     * nothing is a waste. */
    void (*overlay)(void *data, uint8_t *bytes, size_t length, uint64_t offset);
    void *overlay_data;
};

/*
 * Packs what pays; *ret_end: the file stands for the log's bytes below this, and is *ret_size long. All that was packed
 * is unpacked again and compared. Positive where it is not worth while, and the file is to be thrown away.
 */
#define WB_PACK_WASTE 1
int wb_pack_write(const struct wb_pack_job *job, uint64_t *ret_end, uint64_t *ret_size);

/* The log's bytes as they are, [offset, end) of it, behind what is in the file at `at`. */
int wb_pack_copy(const struct wb_pack_job *job, uint64_t offset, uint64_t at);
