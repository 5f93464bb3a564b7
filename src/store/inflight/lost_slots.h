/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

/*
 * Slots of `stages` that a power cut took.
 *
 * A file may grow on the disk before its slot is there: the file system writes either when it likes. So the time of
 * modification of the file `stages.lost` says since when slots may be missing. It is set before such a slot is
 * written, hence before the change that the slot is for. It is metadata, and so are sizes and ctimes: file systems with
 * a journal bring these to the disk in the order in which they changed. If the growth is there, that time is, too.
 *
 * Where the power fails meanwhile, a file with a ctime from then on may have changed in a stage of which nothing is
 * known. The file keeps these times until all of the tree was looked at: spans.h answers for them.
 */

#include "store/store.h"

#define WB_LOST_SLOTS_MAX 64
/* All slots are on the disk. */
#define WB_LOST_SLOTS_NONE INT64_MAX

/* Begin: the first ctime a file may have whose slot was lost; end: the first one that no such file has. */
struct wb_lost_slots {
    unsigned count;
    struct wb_span spans[WB_LOST_SLOTS_MAX];
};

/* `ret_since`: since when slots may be missing, by the clock of ctime, or WB_LOST_SLOTS_NONE. 0 or -errno. */
int wb_lost_slots_read(int dir_fd, struct wb_lost_slots *ret, int64_t *ret_since);

/* Where there are too many, neighbours are joined. */
void wb_lost_slots_add(struct wb_lost_slots *slots, struct wb_span span);
/* All files with a ctime up to `floor` were looked at, with every span that ends there. */
void wb_lost_slots_forget(struct wb_lost_slots *slots, int64_t floor);
/* The span with that ctime, or NULL. */
const struct wb_span *wb_lost_slots_find(const struct wb_lost_slots *slots, int64_t ctime);

/* Durable, and no slot is missing by then. 0 or -errno. */
int wb_lost_slots_write(int dir_fd, const struct wb_lost_slots *slots);

/* For wb_lost_slots_mark; makes the file where there is none. A descriptor or -errno. */
int wb_lost_slots_open(int dir_fd);
/* 0 or -errno. */
int wb_lost_slots_mark(int fd, int64_t since);
