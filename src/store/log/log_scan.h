/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

/*
 * Finding the way again in a log whose frames cannot be followed: after damage, or at a tail that a
 * crash left unfinished. Slow and thorough; nothing here runs while a log is sound.
 *
 * The search is for a head that verifies, on a boundary of 8 bytes. Payloads are made of users' bytes and may
 * hold a copy of a log, so a head that lies inside of a record whose own head verifies does not
 * count, whether that record is whole or was cut off.
 */

#include "format/format.h"
#include "store/log/log_bytes.h"
#include <stdbool.h>

enum wb_scan_kind {
    WB_SCAN_RECORD,     /* the record at `from` is whole, only its trailer is damaged          */
    WB_SCAN_UNFINISHED, /* nothing from `from` on was ever a whole record                      */
    WB_SCAN_DAMAGED,    /* [from, to) was something once; bytes outside of it can be followed  */
};

struct wb_scan {
    enum wb_scan_kind kind;
    uint64_t from;
    uint64_t to;
};

/* Bytes enough to verify any record. */
#define WB_SCAN_BUFFER (WB_HEAD_SIZE + WB_BODY_MAX)

/* Reads and verifies the record at `offset` (head and body): 0, -EBADMSG or -errno. */
int wb_log_probe(int fd, uint64_t offset, uint8_t data[WB_SCAN_BUFFER], struct wb_record *ret);

/*
 * No record ends at `end`: where does the last one before it? `tail`: nothing is known to follow, so that an
 * unfinished record is possible. Reads at most the whole log once. 0 or -errno. Packed bytes were whole once: no
 * part of them is ever unfinished, however it looks.
 */
int wb_log_scan_back(const struct wb_log_bytes *bytes, uint64_t end, bool tail, struct wb_scan *ret);

/* No record begins at `begin`: where does the next one, before `end` of the log? 0 or -errno. */
int wb_log_scan_forward(const struct wb_log_bytes *bytes, uint64_t begin, uint64_t end, struct wb_scan *ret);
