/* SPDX-License-Identifier: LGPL-2.1-or-later */
#ifndef WAYBACK_AT_NAME_H
#define WAYBACK_AT_NAME_H

/*
 * NAME@TIME: how a path names a past state of NAME. The mark between them is '@', unless the mount uses another one
 * (-o at-sign=CHAR); wb_control_hello.at_sign (<wayback/control.h>) reports it. All functions are thread-safe.
 */
#define WB_AT_SIGN '@'

/* The characters that a mount may use as its mark. None of them occurs in a TIME or in the names that programs give
 * to snapshots, and none needs an escape in a list of mount options. */
#define WB_AT_SIGNS "@!#$%&()*;<=>?[]^`{|}"

/* Returns 1 if a mount may use `mark`, else 0. */
int wb_at_sign_check(char mark);

/*
 * Returns where TIME begins in `entry`, which is NAME, the mark and TIME; NULL if `entry` has no mark. The last mark
 * counts. The name of a snapshot may contain a mark itself: to find the mark before the previous result, pass that
 * result as `later`; else pass NULL.
 */
const char *wb_at_split(const char *entry, char mark, const char *later);

/* Returns NAME, the mark and TIME as one string, which the caller free()s; NULL if there is no memory. */
char *wb_at_join(const char *name, char mark, const char *time);

#endif
