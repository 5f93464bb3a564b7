/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

/*
 * Slots of `stages` that were lost in a power cut.
 *
 * A file may grow on the disk before its slot is there: the file system writes them in any order. So the modification
 * time of the file `stages.lost` says since when slots may be missing. It is set before such a slot is written, hence
 * before the change that the slot is for. It is metadata, and so are sizes and ctimes: file systems with a journal
 * write these to the disk in the order in which they changed. If the growth is there, that time is, too.
 *
 * If the power fails meanwhile, a file with a ctime since that time may have changed in a stage of which there is no
 * trace. The file keeps these periods until the whole tree was examined: spans.h includes them in its answers.
 */

#include "store/store.h"

#define WB_LOST_SLOTS_MAX 64
/* All slots are on the disk. */
#define WB_LOST_SLOTS_NONE INT64_MAX

/* Begin: the earliest ctime of a file whose slot may be lost; end: the first ctime after them. */
struct wb_lost_slots {
    unsigned count;
    struct wb_span spans[WB_LOST_SLOTS_MAX];
};

/* `ret_since`: since when slots may be missing, by the clock of ctime, or WB_LOST_SLOTS_NONE. 0 or -errno. */
int wb_lost_slots_read(int dir_fd, struct wb_lost_slots *ret, int64_t *ret_since);

/* If there are too many spans, joins neighbours. */
void wb_lost_slots_add(struct wb_lost_slots *slots, struct wb_span span);
/* All files with a ctime up to `floor` were examined: removes every span that ends there. */
void wb_lost_slots_forget(struct wb_lost_slots *slots, int64_t floor);
/* The span that contains that ctime, or NULL. */
const struct wb_span *wb_lost_slots_find(const struct wb_lost_slots *slots, int64_t ctime);

/* Durable; also reports that no slot is missing now. 0 or -errno. */
int wb_lost_slots_write(int dir_fd, const struct wb_lost_slots *slots);

/* For wb_lost_slots_mark; creates the file if it does not exist. A descriptor or -errno. */
int wb_lost_slots_open(int dir_fd);
/* 0 or -errno. */
int wb_lost_slots_mark(int fd, int64_t since);
