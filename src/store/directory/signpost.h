/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

/*
 * A store that was moved (vstore) leaves a signpost where it was, the file `moved`, so that who looks for it there,
 * or in SRC/.wayback, is led to where it is. At each instant exactly one directory is the store, and it is told by
 * one thing: that a signpost leads away from the old one. Until then the old one is the store, and the new one says
 * that it is coming; from then on the new one is, though what is left to be done may be interrupted, and gone on
 * with.
 */

#include "format/format.h"
#include "store/store.h"

/* 1: *ret is what stands there; 0: no signpost; or -errno, -EBADMSG where it cannot be read. */
int wb_signpost_read(int dir_fd, struct wb_signpost *ret);
int wb_signpost_write(int dir_fd, const struct wb_signpost *signpost);
int wb_signpost_remove(int dir_fd);

/* Whether something in a store is called as the graveyard calls what is in it, which no move copies. */
bool wb_grave_is_body(const char *name);

/*
 * Goes from the directory *dir_fd to the one that is the store, and replaces the descriptor. 0: it is the store
 * already, or there is none at all; 1: was led elsewhere, or here; or -errno with a line in `why` (never -ENOENT,
 * which means that nothing was ever recorded). `writable`: of who only reads, a store that has not arrived whole is
 * refused.
 */
int wb_signpost_follow(int *dir_fd, bool writable, const char *home, struct wb_problem *why);

/*
 * For the holder of the lock of a store that was moved here: brings what is left to be brought, the deleted files, and
 * gives it its header. Costs a rename each, nothing is copied. Where nothing is to be done, does nothing. 0 or -errno.
 */
int wb_store_arrive(int src_fd, int dir_fd, const char *home, struct wb_problem *why);

/* The same of a store that is coming, for who has both graveyards open: by their paths they may be covered. */
int wb_store_arrive_from(int from_grave, int to_grave, int dir_fd, const char *home, struct wb_problem *why);

/* Whether `dir_fd` is a store that a signpost in SRC/.wayback led to, and not SRC/.wayback itself. */
bool wb_signpost_led(int src_fd, int dir_fd);

/* Whether a signpost leads away from there: who opened it before reads what is the store no more. */
bool wb_signpost_leads_away(int dir_fd);
