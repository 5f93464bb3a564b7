/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

/*
 * Records of the very length of those that they replace, with a payload of zeros: a log keeps its length, and all other
 * records their places.
 */

#include "format/format.h"
#include <glib.h>

/* The longest FILLER, and the bytes of one before its payload. */
#define WB_FILLER_MAX (WB_FILLER_SIZE + (uint64_t)WB_PAYLOAD_MAX)
#define WB_FILLER_HEAD (WB_FILLER_SIZE - WB_TRAILER_SIZE)

/*
 * `record`, a FILLER or THINNED without a payload, as long as [from, to), at most WB_FILLER_MAX: its first and its last
 * bytes; those between are zeros. 0, or -errno where it is not valid.
 */
int wb_filler_encode_record(struct wb_record *record, uint64_t from, uint64_t to, uint8_t head[WB_FILLER_HEAD],
                             uint8_t end[WB_TRAILER_SIZE]);

/* Bytes [from, to) of a log, whole records, that are forgotten. */
struct wb_filler_run {
    uint64_t from, to;
    int64_t when;  /* of the newest record in it                      */
    int64_t until; /* see struct wb_rec_filler; not later than `when` */
};

/* The FILLER of [from, to) of a run, at most WB_FILLER_MAX long; `more`: what follows has the same `when`. */
void wb_filler_encode(const struct wb_filler_run *run, uint64_t from, uint64_t to, bool more,
                      uint8_t head[WB_FILLER_HEAD], uint8_t end[WB_TRAILER_SIZE]);

/* Puts the FILLERs of a run over what of it is in [offset, offset + length) of the log. */
void wb_filler_fill(const struct wb_filler_run *run, uint8_t *bytes, size_t length, uint64_t offset);
