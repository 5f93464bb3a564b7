/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

/*
 * What becomes of a log whose records keep their places: some are dropped, which leaves FILLERs, and some are replaced
 * by others of their very length. Edits are collected in any order, settled, and applied to the log's bytes where it is
 * copied (compact.h).
 */

#include "maintain/rewrite/filler.h"
#include "store/log/log.h"

/* Of [offset, offset + length) of the log. */
struct wb_log_edit {
    uint64_t offset;
    uint64_t length;
    enum { WB_EDIT_BYTES, WB_EDIT_ZEROS, WB_EDIT_DROP } kind;
    size_t at;                /* WB_EDIT_BYTES: in `bytes` */
    struct wb_filler_run run; /* WB_EDIT_DROP              */
};

struct wb_log_edits {
    GArray *list;      /* of struct wb_log_edit; ascending once they are settled, and none lies in another */
    GByteArray *bytes;
    GHashTable *heads; /* offset of a replaced record -> its index + 1  */
    uint64_t end;      /* behind the last record that is another        */
};

void wb_log_edits_init(struct wb_log_edits *edits);
void wb_log_edits_deinit(struct wb_log_edits *edits);

/* Whole records become FILLERs. 0; -EBADMSG: a record in the run is later than its newest. */
int wb_log_edits_drop(struct wb_log_edits *edits, const struct wb_filler_run *run);
/* The record at record->offset gets this head and body, which are as long as those it has. 0 or -EBADMSG. */
int wb_log_edits_replace(struct wb_log_edits *edits, const struct wb_record *record);
/* [from, to) becomes `record`, a FILLER or THINNED. 0, or -errno where it is not valid. */
int wb_log_edits_empty(struct wb_log_edits *edits, struct wb_record *record, uint64_t from, uint64_t to);
/* These bytes, the first of a record, whatever it is now; `total`: how long all of that is. */
void wb_log_edits_bytes(struct wb_log_edits *edits, uint64_t offset, const uint8_t *data, size_t length,
                        uint64_t total);
void wb_log_edits_zeros(struct wb_log_edits *edits, uint64_t offset, uint64_t length);

/* Replaces the copies of replaced records in INDEX records (array of struct wb_record). 0 or -errno. */
int wb_log_edits_indexes(struct wb_log_edits *edits, int fd, const GArray *indexes);

void wb_log_edits_settle(struct wb_log_edits *edits);
/* To `length` bytes of the log, from `offset` on. */
void wb_log_edits_apply(const struct wb_log_edits *edits, uint8_t *bytes, size_t length, uint64_t offset);
