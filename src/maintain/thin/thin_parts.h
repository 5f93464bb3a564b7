/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

/* What the files of thinning share. */

#include "history/content/extent_map.h"
#include "maintain/prune/prune_parts.h"
#include "maintain/thin/thin.h"
#include "store/log/log.h"
#include <glib.h>

/* ---- other bytes for a log (thin_patch.c) ---------------------------------------------------- */

/* [offset, offset + length) of the log: zeros, or `length` bytes of `bytes`. */
struct wb_thin_patch {
    uint64_t offset;
    uint32_t length;
    bool zeros;
    size_t at;
};

struct wb_thin_patches {
    GArray *list;      /* of struct wb_thin_patch; ascending once they are settled */
    GByteArray *bytes;
    GHashTable *heads; /* offset of a record -> index of its patch + 1 */
    uint64_t end;      /* of the last record that is patched  */
};

void wb_thin_patches_init(struct wb_thin_patches *patches);
void wb_thin_patches_deinit(struct wb_thin_patches *patches);

/* Head and body of `record` become those it has now: they are as long. 0 or -EBADMSG. */
int wb_thin_patch_record(struct wb_thin_patches *patches, const struct wb_record *record);
/* These bytes, the first of a record, whatever it is now; `total`: how long all of that is. */
void wb_thin_patch_bytes(struct wb_thin_patches *patches, uint64_t offset, const uint8_t *data, size_t length,
                         uint64_t total);
void wb_thin_patch_zeros(struct wb_thin_patches *patches, uint64_t offset, uint64_t length);

/* Patches the copies of patched records in INDEX records (array of struct wb_record). 0 or -errno. */
int wb_thin_patch_indexes(struct wb_thin_patches *patches, int fd, const GArray *indexes);

void wb_thin_patches_settle(struct wb_thin_patches *patches);
void wb_thin_overlay(const struct wb_thin_patches *patches, uint8_t *bytes, size_t length, uint64_t offset);

/* ---- what counts together (thin_log.c) ----------------------------------------------------- */

/* A record as it is in the log; its head and body are kept as bytes. */
struct wb_thin_part {
    uint64_t offset;
    int64_t change; /* that it is of: its `when`, or that of the end of its stage */
    size_t at;
    uint32_t length;
    bool joined; /* to the change before: it was, or is going to be */
};

/* Changes that count together, newest record first; and the one being read. */
struct wb_thin_group {
    GArray *parts;     /* of struct wb_thin_part */
    GByteArray *heads;
};
