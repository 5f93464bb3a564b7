/* SPDX-License-Identifier: LGPL-2.1-or-later */
#ifndef WAYBACK_ERROR_H
#define WAYBACK_ERROR_H

/*
 * How the functions of libwayback report errors and outcomes.
 *
 * A function returns 0 for success, a negative errno for failure (every caller forwards it unchanged), or a positive
 * `enum wb_outcome` if success has several forms that the caller must distinguish.
 */
enum wb_outcome {
    WB_END = 1,     /* the end of an iteration: no further record, entry or version */
    WB_ABSENT,      /* the name or object did not exist at that time */
    WB_DAMAGED,     /* a record is damaged; the caller describes which part was skipped */
    WB_NOT_TIME,    /* the text is not a time */
    WB_UNCHANGED,   /* there was nothing to change; nothing was recorded */
};

/*
 * An error message for people: the path, the problem, the reason, and what to do. `text` is one line without a newline.
 * Functions that take a `struct wb_error *` set it if they fail; a caller that does not need the text passes NULL.
 */
struct wb_error {
    char text[512];
};

/* Formats the message into why->text. Returns `error` (a negative errno), so that callers can `return` the call. */
int wb_error_set(struct wb_error *why, int error, const char *format, ...) __attribute__((format(printf, 3, 4)));

#endif
