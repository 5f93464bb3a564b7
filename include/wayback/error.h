/* SPDX-License-Identifier: LGPL-2.1-or-later */
#ifndef WAYBACK_ERROR_H
#define WAYBACK_ERROR_H

/*
 * How functions of libwayback report.
 *
 * A function returns 0 for success, a negative errno for failure (forwarded unchanged by every
 * caller), or a positive `enum wb_outcome` where there is more than one way to succeed and the
 * caller must look.
 */
enum wb_outcome {
    WB_END = 1,     /* a walk is over: no further record, entry or version */
    WB_ABSENT,      /* the name or object did not exist at that time */
    WB_DAMAGED,     /* a record cannot be trusted; what was skipped is described by the caller */
    WB_NOT_TIME,    /* the text is not a time */
    WB_UNCHANGED,   /* nothing would change, nothing was recorded */
};

/*
 * A failure told to a person: what was being done, on which path, why, and what to do.
 * `text` is one line without a newline. Filled by functions that take a `struct wb_problem *`;
 * NULL may be passed by callers that do not want the text.
 */
struct wb_problem {
    char text[512];
};

/* Formats into why->text; returns `error` (a negative errno) so that it can end a function. */
int wb_problem_set(struct wb_problem *why, int error, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

#endif
