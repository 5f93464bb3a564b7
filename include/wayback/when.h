/* SPDX-License-Identifier: LGPL-2.1-or-later */
#ifndef WAYBACK_WHEN_H
#define WAYBACK_WHEN_H

#include <stddef.h>
#include <stdint.h>

/*
 * Points in time: nanoseconds since the epoch, UTC, as an int64_t ("when").
 *
 * `name@TIME` and all tools use the same parser, so that a time has the same meaning everywhere. All functions are
 * thread-safe and do not allocate.
 */

#define WB_WHEN_SECOND INT64_C(1000000000)

/* The present: greater than any recorded `when`. */
#define WB_WHEN_PRESENT INT64_MAX

/* The kinds of TIME: an instant, "before the N-th most recent version" (`~N`), or the same of changes (`~~N`). */
enum wb_time_kind {
    WB_TIME_INSTANT,
    WB_TIME_VERSION,
    WB_TIME_CHANGE,
};

struct wb_time {
    enum wb_time_kind kind;
    int relative;      /* 1: its meaning depends on the clock or on later changes: now, 5m, ~2 */
    int64_t instant;   /* WB_TIME_INSTANT: ns since the epoch                                  */
    uint32_t number;   /* WB_TIME_VERSION, WB_TIME_CHANGE: N >= 1                              */
    int truncated;     /* 1: the fraction of the second is missing (GMT-...)                   */
};

/*
 * Parses TIME as written after an `@`: seconds since the epoch with up to nine decimals (an integer must have nine
 * digits or more); ISO 8601 (with T or a space, with or without seconds, fraction, zone); a time of day (today, local);
 * today, yesterday, now; an age (90s 5m 2h30m 3d 1w); ~N, ~~N; GMT-2026.11.21-14.03.00 (UTC), which SMB clients use for
 * previous versions, with or without its own '@'. `now` is the present in ns. Returns 0, or WB_NOT_TIME.
 */
int wb_time_parse(const char *text, int64_t now, struct wb_time *ret);

/*
 * As wb_time_parse, and also what follows an '@' in a path only if no snapshot has that name: ages with spelled units
 * (10min, "5 minutes ago"), 2pm, "yesterday 14:03". All begin with a digit or with that word and are in lower case, so
 * that hardly any name of a file that somebody may want to create reads as one. Returns 0, or WB_NOT_TIME.
 */
int wb_time_parse_name(const char *text, int64_t now, struct wb_time *ret);

/*
 * As wb_time_parse, and also forms that people type on a command line: "5 minutes ago", "yesterday 14:03", with a
 * leading '@' and surrounding blanks allowed. Returns 0, or WB_NOT_TIME.
 */
int wb_time_parse_words(const char *text, int64_t now, struct wb_time *ret);

/*
 * Parses the forms in which people write and programs print times: "10 min", "1.5h", "2 months ago", "2pm", "noon",
 * "this morning" (6:00; afternoon: 12:00, evening: 18:00), "monday 9:30", "Nov 20" (the last one), "20 Nov 2026
 * 14:03", "20.11.2026", and the output of date(1), ls(1), git-log(1), mail and web server logs. For command lines; try
 * it last, because many of these can be names of snapshots. A day of the week alone means the last one before today;
 * with a date it must be the day of that date.
 * Returns 0, or WB_NOT_TIME.
 */
int wb_time_parse_free(const char *text, int64_t now, struct wb_time *ret);

/* The wall clock. */
int64_t wb_when_now(void);

/* Long enough for every format below. */
#define WB_WHEN_TEXT_MAX 64

/* Prints local time for people, e.g. "2026-11-20 14:03:07.123456 +0100" (micro != 0: 6 decimals, else none). Returns
 * `text`, as the functions below do. */
const char *wb_when_print(int64_t when, int micro, char text[WB_WHEN_TEXT_MAX]);

/* ISO 8601 with nine decimals and zone, e.g. "2026-11-20T14:03:07.123456789+01:00". */
const char *wb_when_print_iso(int64_t when, char text[WB_WHEN_TEXT_MAX]);

/* Seconds since the epoch with nine decimals: exact, and accepted by wb_time_parse. */
const char *wb_when_print_epoch(int64_t when, char text[WB_WHEN_TEXT_MAX]);

#endif
