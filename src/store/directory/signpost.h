/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

/*
 * A moved store (vstore) leaves a signpost at its former place, the file `moved`, which leads a process that opens that
 * place, or SRC/.wayback, to the new one. At each instant exactly one directory is the store, and one fact decides
 * which: whether a signpost leads away from the old one. Until then the old one is the store, and the new one says that
 * it is coming; from then on the new one is, even if the rest of the move is interrupted and has to be continued.
 */

#include "format/format.h"
#include "store/store.h"

/* 1: *ret is the signpost; 0: there is none; or -errno, -EBADMSG if it cannot be decoded. */
int wb_signpost_read(int dir_fd, struct wb_signpost *ret);
int wb_signpost_write(int dir_fd, const struct wb_signpost *signpost);
int wb_signpost_remove(int dir_fd);

/* Whether the name of an entry of a store is one that the graveyard uses; a move does not copy these. */
bool wb_grave_is_body(const char *name);

/*
 * Follows the signposts from the directory *dir_fd to the store, and replaces the descriptor. 0: it is the store
 * already, or there is none at all; 1: a signpost was followed, or leads here; or -errno with a line in `why` (never
 * -ENOENT, which means that nothing was ever recorded). `writable`: a reader is refused a store that has not arrived
 * completely.
 */
int wb_signpost_follow(int *dir_fd, bool writable, const char *home, struct wb_error *why);

/*
 * For the holder of the lock of a store that was moved here: moves the remaining parts, the deleted files, and gives it
 * its header. Costs one rename each and copies nothing. Does nothing if the move is complete. 0 or -errno.
 */
int wb_store_arrive(int src_fd, int dir_fd, const char *home, struct wb_error *why);

/* The same for a store that is coming, for a caller that has both graveyards open: their paths may be covered by
 * mounts. */
int wb_store_arrive_from(int from_grave, int to_grave, int dir_fd, const char *home, struct wb_error *why);

/*
 * The directories to which signposts lead from `dir_fd`, one after the other, as far as they can be opened (O_PATH);
 * the caller closes the descriptors. `belongs`: the store that the first signpost names is there, or another signpost
 * of it. Returns their number.
 */
#define WB_SIGNPOST_PLACES_MAX 16
struct wb_signpost_place {
    int fd;
    bool belongs;
};
size_t wb_signpost_places(int dir_fd, struct wb_signpost_place ret[WB_SIGNPOST_PLACES_MAX]);

/* Whether `dir_fd` is a store that a signpost in SRC/.wayback led to, and not SRC/.wayback itself. */
bool wb_signpost_led(int src_fd, int dir_fd);

/* Whether a signpost leads away from there: then a process that opened it before does not read the store any more. */
bool wb_signpost_leads_away(int dir_fd);
