/* SPDX-License-Identifier: LGPL-2.1-or-later */
#ifndef WAYBACK_AT_NAME_H
#define WAYBACK_AT_NAME_H

/*
 * NAME@TIME: how a path names a past state of NAME. The mark between them is '@', unless the mount was given
 * another (-o at-sign=CHAR); <wayback/control.h> tells which (wb_control_hello.at_sign). Thread-safe.
 */
#define WB_AT_SIGN '@'

/* The characters that a mount may have as its mark: none of them is part of a TIME, or of a name that programs give
 * to snapshots, and none needs an escape in a list of mount options. */
#define WB_AT_SIGNS "@!#$%&()*;<=>?[]^`{|}"

/* 1 if a mount may have `mark`, else 0. */
int wb_at_sign_check(char mark);

/*
 * Where TIME begins in `entry`, which is NAME, the mark and TIME; NULL if it has no mark. The last mark counts. A name
 * of a snapshot may hold a mark itself: `later`, NULL or the previous result, asks for the mark before that one.
 */
const char *wb_at_split(const char *entry, char mark, const char *later);

/* Writes NAME, the mark and TIME; the text is allocated with malloc(3), NULL if there is no memory. */
char *wb_at_join(const char *name, char mark, const char *time);

#endif
